# SPDX-License-Identifier: MIT
"""Reads a file for speedscope as speedscope does: what speedscope.schema.json asks for, and what a schema cannot say."""

import collections
import json
import os

TYPES = {"object": dict, "array": list, "string": str, "number": (int, float)}


def check(value, schema, where="file"):
    """The part of JSON Schema that speedscope.schema.json uses. ValueError: where it is not met."""
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{where} is {value!r}")
    if "type" in schema and (not isinstance(value, TYPES[schema["type"]]) or isinstance(value, bool)):
        raise ValueError(f"{where} is no {schema['type']}: {value!r}"[:200])
    if "minimum" in schema and value < schema["minimum"]:
        raise ValueError(f"{where} is {value}")
    for name in schema.get("required", []):
        if name not in value:
            raise ValueError(f"{where} has no {name}")
    if schema.get("type") == "object":
        for name, part in value.items():
            if name not in schema["properties"]:
                raise ValueError(f"{where} has a {name}")
            check(part, schema["properties"][name], f"{where}.{name}")
    if schema.get("type") == "array":
        for i, part in enumerate(value):
            check(part, schema["items"], f"{where}[{i}]")


def read(path):
    """{stack: weight} of all profiles, outermost frame first."""
    with open(path) as file:
        document = json.load(file)
    with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "speedscope.schema.json")) as file:
        check(document, json.load(file))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    if len(set(names)) != len(names):
        raise ValueError("a frame is there twice")
    stacks = collections.Counter()
    for profile in document["profiles"]:
        if len(profile["samples"]) != len(profile["weights"]):
            raise ValueError("there are not as many weights as samples")
        if profile["endValue"] - profile["startValue"] != sum(profile["weights"]):
            raise ValueError("the weights do not add up")
        for sample, weight in zip(profile["samples"], profile["weights"]):
            stacks[tuple(names[i] for i in sample)] += weight
    return stacks
