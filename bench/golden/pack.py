"""Makes the golden set of a collected log: pack.py LOG OUT.json.gz. What no reader of the set needs goes: all times but the
fastest, when and how long; kernels of few schedules, too. The same log gives the same bytes."""
import gzip
import json
import pathlib
import sys

LEAST = 60


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    tasks, trials = {}, {}
    for line in source.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "task":
            tasks[record["id"]] = record
        else:
            trials.setdefault(record["task"], []).append(record)
    lines = []
    for task in sorted(tasks.values(), key=lambda t: (t["name"], t["id"])):
        if len(trials.get(task["id"], [])) < LEAST:
            continue
        lines.append(task)
        for trial in trials[task["id"]]:
            trial["times_us"] = [round(min(trial["times_us"]), 3)] if trial["times_us"] else []
            for field in ("noise", "build_s", "run_s", "time"):
                if field in trial:
                    trial[field] = 0.0
            lines.append(trial)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with open(target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(text.encode())
    kernels = sum(line["kind"] == "task" for line in lines)
    print(f"{kernels} kernels, {len(lines) - kernels} schedules, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
