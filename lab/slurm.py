# SPDX-License-Identifier: MIT
"""Experiments on a cluster of Slurm's: one array job, each of whose tasks runs one experiment and leaves its figures in a folder
that all nodes share, in a file with the job's number. sbatch waits for it, and for tasks that are queued again."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile


class Lost(Exception):
    """What has become of the job, in words."""


def script(vpmu, names, quick, folder):
    words = ["lab", *(["quick"] if quick else [])]
    return (f"#!/bin/sh\nset -- {shlex.join(names)}\nshift \"$SLURM_ARRAY_TASK_ID\"\n"
            f"exec {shlex.quote(vpmu)} {shlex.join(words)} \"$1\" --json {shlex.quote(folder)}/\"$SLURM_ARRAY_JOB_ID-$1\".json\n")


def submit(text, count, folder):
    """sbatch, which has told the job's number and ends with it."""
    log = folder.replace("%", "%%") + "/%A-%a.log"
    with tempfile.TemporaryFile("w+") as job_script, tempfile.TemporaryFile("w+", errors="replace") as errors:
        job_script.write(text)
        job_script.seek(0)
        try:
            sbatch = subprocess.Popen(["sbatch", "--parsable", "--wait", "--requeue", "--job-name=vpmu-lab", f"--array=0-{count - 1}",
                                       "--open-mode=truncate", f"--output={log}"],
                                      text=True, stdin=job_script, stdout=subprocess.PIPE, stderr=errors)
        except OSError as error:
            raise Lost(f"Slurm has not taken the job: cannot start sbatch: {error.strerror}") from None
        job = sbatch.stdout.readline().strip()
        if not job:
            sbatch.wait()
            errors.seek(0)
            raise Lost("Slurm has not taken the job: " + errors.read().strip().split("\n")[-1])
    return sbatch, job


def cancel(job):
    number, _, cluster = job.partition(";")
    subprocess.run(["scancel", *([f"--clusters={cluster}"] if cluster else []), number], check=False)


def wait(sbatch, job):
    """Its exit code is a task's, which is in the figures as well. A job that is no longer waited for is cancelled."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        sbatch.wait()
    except BaseException:
        cancel(job)
        sbatch.kill()
        sbatch.wait()
        raise


def outcome(folder, job, name):
    try:
        with open(f"{folder}/{job.partition(';')[0]}-{name}.json", encoding="utf-8") as file:
            return json.load(file)[0]
    except (OSError, ValueError):
        return None


def run(vpmu, names, quick, folder):
    """The outcomes that there are; and of experiments without one, their names and the logs of their tasks."""
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    sbatch, job = submit(script(vpmu, names, quick, folder), len(names), folder)
    wait(sbatch, job)
    outcomes = [outcome(folder, job, name) for name in names]
    return ([found for found in outcomes if found],
            [(name, f"{folder}/{job.partition(';')[0]}-{i}.log") for i, name in enumerate(names) if not outcomes[i]])
