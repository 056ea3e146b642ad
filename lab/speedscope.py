# SPDX-License-Identifier: MIT
"""Profiles as speedscope reads them (github.com/jlfwong/speedscope, src/lib/file-format-spec.ts)."""

import json

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def document(name, profiles):
    """profiles: {name: [(stack, weight)]} in the order of time, frames outermost first."""
    frames = {}  # names, numbered as they come

    def profile(label, samples):
        return {"type": "sampled", "name": label, "unit": "none", "startValue": 0, "endValue": sum(weight for _, weight in samples),
                "samples": [[frames.setdefault(frame, len(frames)) for frame in stack] for stack, _ in samples],
                "weights": [weight for _, weight in samples]}
    made = [profile(label, samples) for label, samples in profiles.items()]
    return json.dumps({"$schema": SCHEMA, "name": name, "exporter": "vpmu", "activeProfileIndex": 0,
                       "shared": {"frames": [{"name": frame} for frame in frames]}, "profiles": made})
