"""Fetches the source package of a PyPI project without building it, which `pip download` would.

Usage: fetch_sdist.py PROJECT VERSION FILE
"""

import re
import sys
import urllib.parse
import urllib.request

project, version, path = sys.argv[1:]
index = f"https://pypi.org/simple/{project}/"
page = urllib.request.urlopen(index).read().decode()
link = re.search(rf'href="([^"#]*{project}-{re.escape(version)}\.tar\.gz)', page)
if link is None:
    sys.exit(f"{index} has no source package of {project} {version}")
with open(path, "wb") as file:
    file.write(urllib.request.urlopen(urllib.parse.urljoin(index, link.group(1))).read())
