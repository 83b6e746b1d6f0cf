# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---
# %% [markdown]
# # Publish your own
#
# From a finished run to a folder that is exactly a Hub repo: measured, with a card and a film, checked as a stranger
# would check it, and shown on a page of its own. Nothing is uploaded until the last command, which you type yourself.
#
# It starts from the run of `demos/first_hour.py`, in the same folder.

# %%
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

from agentzoo import Agent
from agentzoo.hub.publish import check_folder
from agentzoo.hub.stage import stage
from agentzoo.hub.verify import verify
from agentzoo.site.build_site import build_site

OUT = Path(os.environ.get("AGENTZOO_OUT", "out"))
RUN = OUT / "first-hour" / "run"
os.environ["MINARI_DATASETS_PATH"] = str(OUT / "first-hour" / "datasets")
if not (RUN / "config.json").is_file():
    raise SystemExit(f"{RUN} holds no finished run; run demos/first_hour.py first.")

# %% [markdown]
# ## Stage
#
# One call measures the run, films an episode and writes the card from what it found. A real one takes 100 episodes and
# sweeps the returns it can be asked for (`sweep_episodes=20`).

# %%
folder = stage(RUN, OUT / "zoo", hardware="a laptop", sweep_episodes=0, on_progress=print)
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# ## Check
#
# `check_folder` is what a push does before it sends anything. `verify` is what anybody else can do: it checks the files
# against each other and plays the episodes again.

# %%
files, _ = check_folder(folder)
print(f"{len(files)} files would be pushed")
report = verify(folder)
for check in report.checks:
    print(f"{check.name}: {check.details}")
assert report.holds

# %% [markdown]
# ## Use it, as others will

# %%
os.environ["AGENTZOO_ZOO"] = str(OUT / "zoo")
print(Agent.from_pretrained(f"zoo/{folder.name}"))

# %% [markdown]
# ## Show it
#
# A static site of your zoo. Open `index.html` from disk; the folder is a static Space of the Hub as it is.

# %%
built = build_site(OUT / "site", OUT / "zoo")
print(f"{built.folder / 'index.html'}: {built.agents} agent, {built.bytes / 1e6:.1f} MB")

# %% [markdown]
# ## Push
#
# ```
# agentzoo hub push out/zoo/dt-hopper-own YOUR-NAME/dt-hopper-own --tag v1
# ```
