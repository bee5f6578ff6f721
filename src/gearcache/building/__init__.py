"""The cold path: from one call of a method to variants ready to be stored.

request.py     what to build, and the result
tracer.py      one Dynamo run at some sizes of the call
trace_units.py which runs the gears of the call need
gear_jobs.py   the graph of each gear, and the compile jobs
variants.py    the stored form of a run and its compiled gears
build.py       runs the whole build

Nothing here is imported by a relaunch.
"""
