"""Measuring: time, memory, and records that say where each number came from.

`timing` and `memory` measure, `case` says how a technique hands in its measurements, `runner` runs them,
`table` prints them, `record` writes and reads them as JSON, `query` picks rows out of a record, and
`environment` describes the machine without identifying it.

A technique takes part by having a module of its own name here, such as `attnlab.bench.segments` for the room
`attnlab.segments`; see `attnlab.bench.case`. Importing `attnlab.bench` loads no framework.
"""
