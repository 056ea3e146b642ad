# SPDX-License-Identifier: MIT
"""Blocks of bench/truth: measures blocks of code, without a PMU (bench/blocks.c), and compares them with `vpmu cost`. Prints the mean
error of cycles, Kendall's tau and the worst cases."""

import collections
import math
import os
import subprocess
import sys

import silicon
from silicon import TOP, VPMU


def read(path, every):
    lines = open(path).read().splitlines()
    rows = [line.split(",") for line in lines if line and not line.startswith("hex")]
    return {row[0]: row[1:4] for row in rows[::every]}


def run(command, text):
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, timeout=3600)
    return [line.split(",") for line in result.stdout.splitlines() if line and not line.startswith("hex")]


def inversions(values):
    """Pairs in the wrong order, and the values sorted."""
    if len(values) < 2:
        return 0, values
    half = len(values) // 2
    n, left = inversions(values[:half])
    more, right = inversions(values[half:])
    n, merged = n + more, []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
            n += len(left) - i
    return n, merged + left[i:] + right[j:]


def tau(pairs):
    """Kendall's tau-b."""
    def tied(values):
        return sum(n * (n - 1) // 2 for n in collections.Counter(values).values())

    everything = len(pairs) * (len(pairs) - 1) // 2
    tied_x, tied_y, both = tied(x for x, _ in pairs), tied(y for _, y in pairs), tied(pairs)
    wrong, _ = inversions([y for _, y in sorted(pairs)])
    right = everything - tied_x - tied_y + both - wrong
    return (right - wrong) / math.sqrt((everything - tied_x) * (everything - tied_y))


def text_of(code):
    lines = subprocess.run([VPMU, "cost", code], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("static slots"))
    column = lines[header].index("instruction")
    return "; ".join(line[column:].split("  ;")[0] for line in lines[header + 1:])


def report(measured, predicted, worst):
    errors = sorted(((predicted[code] - cycles) / cycles, code) for code, cycles in measured.items() if code in predicted)
    if len(errors) < 2:
        sys.exit("too few blocks were measured: is the core idle?")
    mean = sum(abs(error) for error, _ in errors) / len(errors)
    median = sorted(abs(error) for error, _ in errors)[len(errors) // 2]
    pairs = [(measured[code], predicted[code]) for _, code in errors]
    print(f"{len(errors)} blocks: mean error {100 * mean:.2f} %, median {100 * median:.2f} %, Kendall's tau {tau(pairs):.3f}")
    for error, code in sorted(errors, key=lambda row: -abs(row[0]))[:worst]:
        print(f"{100 * error:+5.0f} %  measured {measured[code]:6.2f}  model {predicted[code]:6.2f}  {text_of(code)}")


def blocks(vendor, model, args):
    silicon.make("build/vpmu", "build/bench/blocks")
    chosen = read(args.blocks, args.every)
    print(f"measuring {len(chosen)} blocks, against {model}", file=sys.stderr)
    command = [os.path.join(TOP, "build/bench/blocks"), "-c", str(args.core), "-n", str(args.samples)]
    rows = run(command + ["-s"] * (vendor == "AuthenticAMD"), "".join(code + "\n" for code in chosen))
    measured = {row[0]: float(row[1]) for row in rows}
    predicted = {row[0]: float(row[1]) for row in run([VPMU, "cost", "--cpu", model, "--csv", "-"],
                                                       "".join(code + "\n" for code in measured))}
    if args.record:
        with open(args.record, "w") as out:
            print("hex,source,category,n,cycles,spread", file=out)
            for code, cycles, spread in rows:
                print(",".join([code, *chosen[code], cycles, spread]), file=out)
    report(measured, predicted, args.worst)
