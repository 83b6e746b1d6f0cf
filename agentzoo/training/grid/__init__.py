"""Many runs at once: a plan of run folders, an engine that runs it, and the status of each run.

`plan` turns agents and seeds into rows, `tasks` runs one row in its own process, `local` and `cluster` are engines
(processes of this machine; Ray), `drive` gives rows to an engine until none is left, `status` reads the folders.
"""
