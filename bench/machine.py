"""What the figures were measured on: CPU, versions, the peak of its multiply-add units."""

import json
import os
import pathlib
import platform
import re
import subprocess

from runtimes import Failure, run_json

HERE = pathlib.Path(__file__).resolve().parent


def cpu_count():
    return len(os.sched_getaffinity(0))


def cpu_facts():
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if not line.strip():
            break  # the first CPU stands for all
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    flags = set(facts.get("flags", "").split())
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
    return {
        "name": facts.get("model name", platform.machine()),
        "family_model_stepping": "/".join(facts.get(key, "?") for key in ("cpu family", "model", "stepping")),
        "features": [flag for flag in wanted if flag in flags],
        "cpus": cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
    }


def slug(cpu_name):
    """`Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz` -> `intel-xeon-platinum-8481c`"""
    name = re.sub(r"\((R|TM)\)|@.*|\b(CPU|Processor)\b|\d+-Core", " ", cpu_name, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown-cpu"


def save(folder, date, name, kind, result, text):
    """FOLDER/DATE-NAME{-KIND}.md and .json; the path without the ending."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{date}-{slug(name)}{kind}"
    pathlib.Path(f"{stem}.md").write_text(text)
    pathlib.Path(f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    return stem


def source_version():
    """The commit of the working tree, with `-dirty` when something in it is not committed; outside of git what a kit says (kit.py)."""
    noted = HERE / "VERSION"
    if noted.exists():
        return noted.read_text().strip()
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip()


class FmaPeak:
    """A contestant that only multiplies and adds: the peak in the same moments as the others."""

    name = "fma_peak"

    def __init__(self, program, threads):
        self.program, self.threads, self.gflops = program, threads, 0.0

    @staticmethod
    def build(folder):
        program = pathlib.Path(folder) / "fma_peak"
        command = ["g++", "-O2", "-march=native", "-ffp-contract=fast", "-pthread", HERE / "fma_peak.cpp", "-o", program]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"g++ could not build fma_peak: {done.stderr.strip()[:300]}")
        return program

    def slice(self, seconds):
        self.gflops = max(self.gflops, run_json([self.program, self.threads, seconds], timeout=60)["gflops"])
        return {"gflops": self.gflops}
