"""The wheel holds a program, so its tag has a platform; auditwheel replaces the tag."""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{os.uname().machine}"
