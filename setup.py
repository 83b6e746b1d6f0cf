"""What pyproject.toml cannot say: which staged agents the wheel brings along, so that they load without a network."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BUNDLED = ("dm-hopper-medium", "dt-hopper-medium", "unimask-doorkey")
FILES = ("config.json", "model.safetensors", "train_config.json", "results.json", "README.md")  # what loading reads
SOURCES = [Path("hub_cards", agent, name) for agent in BUNDLED for name in FILES]


class BuildWithAgents(build_py):
    """Copies the agents from `hub_cards/` to `agentzoo/bundled/`; one that is missing fails the build."""

    def run(self) -> None:
        """Copy the agents after the modules."""
        super().run()
        if self.editable_mode:  # a checkout finds them where they are
            return
        for source in SOURCES:
            target = Path(self.build_lib, "agentzoo", "bundled", *source.parts[1:])
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_source_files(self) -> list[str]:
        """For the sdist, from which `python -m build` makes the wheel."""
        return [*super().get_source_files(), *(source.as_posix() for source in SOURCES)]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """For whoever asks what was built."""
        built = [str(Path(self.build_lib, "agentzoo", "bundled", *source.parts[1:])) for source in SOURCES]
        return [*super().get_outputs(include_bytecode), *built]


setup(cmdclass={"build_py": BuildWithAgents})
