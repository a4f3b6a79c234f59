"""sbom.py BUILD VERSION FILE: writes the SPDX 2.3 document of the program BUILD/penstock: the packages of Debian whose code is
linked into it or loaded by it (docker/linked.py), checked by spdx-tools.

Its time is SOURCE_DATE_EPOCH and its address has a hash of its content, so the same packages give the same bytes.
"""
import datetime
import hashlib
import os
import subprocess
import sys
import urllib.parse

from linked import packages
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx.model import (Actor, ActorType, CreationInfo, Document, ExternalPackageRef, ExternalPackageRefCategory, Package,
                                   Relationship, RelationshipType, SpdxNoAssertion)
from spdx_tools.spdx.writer.write_anything import write_file

PROGRAM = "SPDXRef-penstock"
# Each way of docker/linked.py, as a relationship of the program.
WAYS = {"static": RelationshipType.STATIC_LINK, "dynamic": RelationshipType.DYNAMIC_LINK, "below": RelationshipType.DEPENDS_ON,
        "loaded": RelationshipType.DEPENDS_ON}
COMMENTS = {"below": "needed by a library that is linked", "loaded": "opened by dlopen when its feature is used"}


def package(name, version, **members):
    spdx_id = "SPDXRef-" + name.replace("_", "-").replace("+", "-")
    return Package(spdx_id=spdx_id, name=name, version=version, download_location=SpdxNoAssertion(), files_analyzed=False, **members)


def library(name, version, architecture):
    purl = f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(version, safe='')}?arch={architecture}"
    reference = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)
    return package(name, version, external_references=[reference])


def document(build, version):
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc).replace(tzinfo=None)
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    found = packages(build)
    digest = hashlib.sha256(f"{version} {made} {found}".encode()).hexdigest()
    info = CreationInfo("SPDX-2.3", "SPDXRef-DOCUMENT", f"penstock-{version}", f"https://spdx.org/spdxdocs/penstock-{version}-{digest}",
                        [Actor(ActorType.TOOL, "penstock-docker-sbom.py")], made)
    contents = [package("penstock", version, license_declared=spdx_licensing.parse("Apache-2.0"))]
    relationships = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, PROGRAM)]
    for name, (of, how) in found.items():
        contents.append(library(name, of, architecture))
        relationships.append(Relationship(PROGRAM, WAYS[how], contents[-1].spdx_id, COMMENTS.get(how)))
    return Document(info, contents, relationships=relationships)


def main():
    build, version, file = sys.argv[1:]
    write_file(document(build, version), file, validate=True)


if __name__ == "__main__":
    main()
