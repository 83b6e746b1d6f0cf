"""Many runs at once: a plan of run folders, an engine that works through it, and what their files say of each.

`plan` turns agents and seeds into rows, `tasks` does one in a process of its own, `local` and `cluster` are engines
(processes of this machine; Ray), `drive` hands rows to an engine until none is left, `status` reads the folders.
"""
