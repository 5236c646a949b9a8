"""From measurements to ratios, and to Markdown."""

import math
import statistics


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def summarise(slices):
    """Many short slices of one runtime. `spread` is how far their minima lie apart: the machine's unrest."""
    minima = [s["min_ms"] for s in slices]
    return {
        "min_ms": min(minima),
        "median_ms": statistics.median(s["median_ms"] for s in slices),
        "runs": sum(s["runs"] for s in slices),
        "spread": max(minima) / min(minima) - 1,
        "slices": slices,
    }


OURS = ("mcc", "mcc tuned")


def ratios(runtimes, ours="mcc"):
    """One of ours against the best of the peers, by the smallest times and by the medians; {} when either is missing."""
    found = {}
    for key in ("min", "median"):
        times = {name: r[key + "_ms"] for name, r in runtimes.items() if key + "_ms" in r}
        peers = [time for name, time in times.items() if name not in OURS]
        if ours in times and peers:
            found[key] = times[ours] / min(peers)
    return found


def summary(models, thread_counts, key="ratio"):
    """Per thread count: the geometric mean and the worst of the ratios, and over how many models."""
    result = {}
    for threads in thread_counts:
        rows = [(m["name"], t[key]) for m in models for t in m["threads"] if t["threads"] == threads and t.get(key)]
        worst = max(rows, key=lambda row: row[1]["min"], default=None)
        result[str(threads)] = {
            "models": len(rows),
            "geometric_mean_min": geometric_mean([ratio["min"] for _, ratio in rows]),
            "geometric_mean_median": geometric_mean([ratio["median"] for _, ratio in rows]),
            "worst": {"model": worst[0], "ratio": worst[1]["min"]} if worst else None,
        }
    return result


def number(value, digits=3):
    """Significant digits, never an exponent: 0.00694, 3.30, 34.1, 435"""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def plural(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def time_cell(runtime):
    return number(runtime.get("min_ms")) if runtime and "error" not in runtime else "failed"


def latency_table(result, threads):
    names = result["runtimes"]
    with_flop = any(m["flop"] for m in result["models"])
    ours = [name for name in OURS if name in names]
    header = ["model", *(f"{name} ms" for name in names), *(f"{name} / best peer" for name in ours), "by median", "unrest"]
    if with_flop:
        header += [f"{name} GFLOP/s (of peak)" for name in names]
    rows = []
    for model in result["models"]:
        for at in model["threads"]:
            if at["threads"] != threads:
                continue
            runtimes = at["runtimes"]
            spreads = [r["spread"] for r in runtimes.values() if "spread" in r]
            row = [model["name"], *(time_cell(runtimes.get(name)) for name in names),
                   *(number(ratios(runtimes, name).get("min")) for name in ours),
                   number(ratios(runtimes, ours[-1]).get("median")),
                   f"{max(spreads) * 100:.0f} %" if spreads else "-"]
            if with_flop:
                row += [speed_cell(runtimes.get(name), model["flop"], at["fma_peak_gflops"]) for name in names]
            rows.append(row)
    return table(header, rows)


def speed_cell(runtime, flop, peak):
    if not flop or not runtime or "min_ms" not in runtime:
        return "-"
    gflops = flop / runtime["min_ms"] / 1e6
    return f"{gflops:.0f} ({gflops / peak * 100:.0f} %)" if peak else f"{gflops:.0f}"


def compile_table(result):
    header = ["model", "compile s", "peak MB", "ONNX MB", "library MB", "largest error (of value)"]
    rows = []
    for model in result["models"]:
        compiled, check = model["compile"], model["check"]
        if not compiled:
            rows.append([model["name"], "failed", "-", number(model["onnx_mb"]), "-", "-"])
            continue
        error = "-"
        if check:
            error = f"{check['max_error']:.1e} ({number(check['max_value'], 2)})" + ("" if check["ok"] else " WRONG")
        rows.append([model["name"], number(compiled["seconds"]), f"{compiled['peak_mb']:.0f}", number(model["onnx_mb"]),
                     number(compiled["library_mb"]), error])
    return table(header, rows)


def tuning_table(result):
    header = ["model", "threads", "seconds", "trials", "ms a trial", "known before", "kernels"]
    rows = []
    for model in result["models"]:
        for at in model["threads"]:
            tuned = at.get("tuning")
            if tuned:
                rows.append([model["name"], str(at["threads"]), number(tuned["seconds"]), str(tuned["trials"]),
                             number(1e3 * tuned["seconds"] / tuned["trials"]) if tuned["trials"] else "-",
                             str(tuned["known_trials"]), str(tuned["kernels"])])
    return table(header, rows)


def failures(result):
    lines = []
    for model in result["models"]:
        lines += [f"- {model['name']}: {text}" for text in model["errors"]]
    return lines


def markdown(result):
    machine, versions, options = result["machine"], result["versions"], result["options"]
    lines = [
        f"# mcc and its peers, {result['date']}, {machine['name']}",
        "",
        f"{machine['cpus']} CPUs (family/model/stepping {machine['family_model_stepping']}; {' '.join(machine['features'])}), "
        f"Linux {machine['kernel']}, load {machine['load_at_start']} at the start. "
        + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        f"Per model, runtime and thread count {options['seconds']} s in {options['rounds']} interleaved slices. Milliseconds are "
        "the best run's; `by median` compares the medians; `unrest` is how far the best runs of a runtime's slices lie "
        "apart, the largest of them: above some 10 % the machine was busy with something else.",
    ]
    if options.get("precision", "fp32") != "fp32":
        lines.append(f"Products of mcc and openvino in {options['precision']}, of onnxruntime in fp32.")
    if options.get("tune"):
        lines.append(f"`mcc tuned`: after `mcc tune --time {options['tune']}` for this model and thread count; its log may hold "
                     "the trials of earlier runs.")
    for threads in options["threads"]:
        peak = max((at["fma_peak_gflops"] or 0 for m in result["models"] for at in m["threads"] if at["threads"] == threads),
                   default=0)
        lines += ["", f"## {plural(threads, 'thread')}", "", *latency_table(result, threads), ""]
        for ours, key in zip(OURS, ("summary", "summary_tuned")):
            of = result.get(key, {}).get(str(threads), {})
            if of.get("models"):
                lines.append(f"Geometric mean of {ours} / best peer over {of['models']} of "
                             f"{plural(len(result['models']), 'model')}: **{number(of['geometric_mean_min'])}** "
                             f"(by median {number(of['geometric_mean_median'])}); worst {of['worst']['model']} at "
                             f"{number(of['worst']['ratio'])}.")
        lines.append(f"FMA peak measured alongside: {peak:.0f} GFLOP/s (f32).")
    lines += ["", "## Compiling", "", *compile_table(result)]
    if options.get("tune"):
        lines += ["", "## Tuning", "", *tuning_table(result)]
    failed = failures(result)
    if failed:
        lines += ["", "## Failures", "", *failed]
    return "\n".join(lines) + "\n"
