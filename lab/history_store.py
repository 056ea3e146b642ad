# SPDX-License-Identifier: MIT
"""The file of `vpmu check --history`: counts of suites at commits, in SQLite. Other programs read them in its view `history`."""

import collections
import os
import sqlite3
import time
import urllib.parse

VERSION = 1
APPLICATION = 0x76706D75  # "vpmu": SQLite has a place for who a file belongs to
PATIENCE = 60  # seconds to wait for another program that writes

SCHEMA = f"""
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    suite TEXT NOT NULL,
    "commit" TEXT NOT NULL,
    dirty INTEGER NOT NULL,      -- the working tree had changes
    committed INTEGER NOT NULL,  -- seconds since 1970, as time
    subject TEXT NOT NULL,
    time INTEGER NOT NULL
);
CREATE TABLE count (
    run INTEGER NOT NULL REFERENCES run,
    benchmark TEXT NOT NULL,
    model TEXT NOT NULL,
    event TEXT NOT NULL,
    count INTEGER NOT NULL,
    environment TEXT NOT NULL,   -- what was counted on, as JSON
    PRIMARY KEY (run, benchmark, model, event)
) WITHOUT ROWID;
CREATE VIEW history AS
    SELECT suite, "commit", dirty, time, benchmark, model, event, count FROM run JOIN count ON run.id = count.run;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""

Commit = collections.namedtuple("Commit", "name dirty committed subject")
Series = collections.namedtuple("Series", "suite benchmark model event")
Point = collections.namedtuple("Point", "commit count environment")
Change = collections.namedtuple("Change", "series before after")


class Refused(Exception):
    """Why a file cannot be used."""


def number(database, name):
    return database.execute(f"PRAGMA {name}").fetchone()[0]


def is_empty(database):
    return not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def check(database, path):
    if number(database, "application_id") != APPLICATION:
        raise Refused(f"{path} is another program's database")
    version = number(database, "user_version")
    if version != VERSION:
        raise Refused(f"{path} is of version {version}, and this vpmu has {VERSION}: name another file")


def connect(path, mode):
    return sqlite3.connect(f"file:{urllib.parse.quote(os.path.abspath(path))}?mode={mode}", uri=True, timeout=PATIENCE,
                           isolation_level=None)


def open_to_read(path):
    if not os.path.exists(path):
        raise Refused(f"there is no {path}")
    database = connect(path, "ro")
    check(database, path)
    return database


def open_to_write(path):
    """Makes the file if there is none; what is in another kind of file stays as it is."""
    database = connect(path, "rwc")
    database.execute("BEGIN IMMEDIATE")  # or two programs could make the tables
    if is_empty(database):
        for statement in SCHEMA.split(";"):
            database.execute(statement)
    else:
        check(database, path)
    return database


def add(path, suite, commit, rows):
    """All of a run's counts, or none. A row has benchmark, model, event, count, environment."""
    database = open_to_write(path)
    try:
        run = database.execute('INSERT INTO run (suite, "commit", dirty, committed, subject, time) VALUES (?, ?, ?, ?, ?, ?)',
                               (suite, *commit, int(time.time()))).lastrowid
        database.executemany("INSERT OR REPLACE INTO count VALUES (?, ?, ?, ?, ?, ?)", [(run, *row) for row in rows])
        database.execute("COMMIT")
    finally:
        database.close()


def read(path):
    """{series: points in the order of commits}. Of several runs at a commit the last one counts."""
    database = open_to_read(path)
    found = {}
    for run, suite, *commit, benchmark, model, event, count, environment in database.execute(
            'SELECT id, suite, "commit", dirty, committed, subject, benchmark, model, event, count, environment '
            "FROM run JOIN count ON run.id = count.run ORDER BY id"):
        commit = Commit(*commit)
        if not all(isinstance(value, int) for value in (*commit[1:3], count)):
            raise Refused(f"{path} has a count or a time that is no number")
        found.setdefault(Series(suite, benchmark, model, event), {})[commit[:2]] = (commit, run, count, environment)
    database.close()
    return {series: [Point(commit, count, environment) for commit, run, count, environment in
                     sorted(points.values(), key=lambda point: (point[0].committed, point[0].dirty, point[1]))]
            for series, points in found.items()}


def changes(history):
    """Where a count differs from that of the commit before it, in the order of commits."""
    found = [Change(series, before, after) for series, points in history.items()
             for before, after in zip(points, points[1:]) if before.count != after.count]
    return sorted(found, key=lambda change: (change.after.commit.committed, change.after.commit.dirty))


def commits(history):
    """All commits of some series, in their order."""
    found = {point.commit[:2]: point.commit for points in history.values() for point in points}
    return sorted(found.values(), key=lambda commit: (commit.committed, commit.dirty))


def plural(count, word):
    return f"{count} {word}" + ("" if count == 1 else "s")


def summary(history, changed):
    benchmarks = {(series.suite, series.benchmark) for series in history}
    return ", ".join((plural(len(commits(history)), "commit"), plural(len(benchmarks), "benchmark"), plural(len(changed), "change")))
