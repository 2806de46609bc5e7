"""What reading and writing cost, beside Hudi on the JVM and beside the bytes alone.

    make bench                                       one million and four million orders; fills docs/benchmarks.md
    make bench BENCH_ARGS="--rows 1000000"

    data.py       deterministic orders and the truth about them
    tables.py     the tables Hudi makes of them
    suites/       what is asked, and of whom
    workers/      the contestants, a process each
    race.py       asks in turn, verifies every answer
    write_race.py lets everybody make a table, step by step, and verifies it
    cold.py       what everybody costs in a new process that takes each step once
    cold_profile.py  where the seconds of a cold session go
    growth.py     what an upsert costs as a table grows
    streams.py    the race of streams: everybody takes the same batches, and all tables are verified
    limits.py     how far a record-level index carries a stream; limits_page.py and plots.py make docs/limits.md of it
    meter.py      wall, CPU, memory and the noise of others
    report.py     tables for a terminal and for docs/benchmarks.md
    stages.py     where our own merged scan spends its time
    bench_*.py    small ones, run once by every `make test`

No time is asserted anywhere; every answer is.
This file imports nothing: Hudi's interpreter, which has PySpark 3.5 only, imports it too.
"""
