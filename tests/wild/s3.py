#!/usr/bin/env python3
"""Uploads to moto's S3, and a catalogue of skills in it. moto checks signatures.

Usage: s3.py --ati BINARY, with a Python that has moto[s3,iam,server].
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import boto3
import botocore.config
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# Calls that moto lets through before it checks credentials: those of `prepare`.
PREPARING = 4
PATIENCE = 60

MANIFEST = """
[provider]
name = "file_manager"
handler = "file_manager"
upload_default_destination = "plain"

[provider.upload_destinations.plain]
kind = "s3"
bucket = "uploads"
region = "eu-west-1"
endpoint = "{endpoint}"
access_key_ref = "s3_id"
secret_key_ref = "s3_secret"

[provider.upload_destinations.signed]
kind = "s3"
bucket = "uploads"
region = "eu-west-1"
endpoint = "{endpoint}"
prefix = "deep/er"
access_key_ref = "s3_id"
secret_key_ref = "s3_secret"
presign_seconds = 600

[provider.upload_destinations.wrong]
kind = "s3"
bucket = "uploads"
region = "eu-west-1"
endpoint = "{endpoint}"
access_key_ref = "s3_id"
secret_key_ref = "s3_wrong"
"""


def start_moto():
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(PREPARING)},
    )
    for line in server.stderr:
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", line)
        if found:
            break
    else:
        sys.exit("FAIL: moto didn't start")
    # What it writes from now on is read, so that it never waits for a full pipe.
    threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
    return server, found[1]


def client(service, endpoint, key):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="eu-west-1",
        aws_access_key_id=key[0],
        aws_secret_access_key=key[1],
        config=botocore.config.Config(s3={"addressing_style": "path"}),
    )


def prepare(endpoint):
    iam = client("iam", endpoint, ("any", "any"))
    iam.create_user(UserName="ati")
    made = iam.create_access_key(UserName="ati")["AccessKey"]
    iam.put_user_policy(UserName="ati", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    key = (made["AccessKeyId"], made["SecretAccessKey"])
    where = {"LocationConstraint": "eu-west-1"}
    client("s3", endpoint, key).create_bucket(Bucket="uploads", CreateBucketConfiguration=where)
    return key


def start_ati(binary, home, endpoint, key):
    (home / "manifests").mkdir()
    (home / "manifests/file_manager.toml").write_text(MANIFEST.format(endpoint=endpoint))
    secrets = {"s3_id": key[0], "s3_secret": key[1], "s3_wrong": key[1][::-1],
               "s3_access_key": key[0], "s3_secret_key": key[1]}
    (home / "credentials").write_text(json.dumps(secrets))
    (home / "credentials").chmod(0o600)
    ready = home / "ready"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "ATI_DIR": str(home),
                   "ATI_KEY_FILE": str(home / "none"),
                   "ATI_SKILL_REGISTRY": f"s3://uploads/team/skills?region=eu-west-1&endpoint={endpoint}"}
    log = (home / "log").open("w")
    proxy = subprocess.Popen([binary, "proxy", "--port", "0", "--ready-file", str(ready)],
                             env=environment, stderr=log, stdin=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while not ready.exists():
        if proxy.poll() is not None or time.monotonic() > end:
            sys.exit("FAIL: ati didn't start:\n" + (home / "log").read_text())
        time.sleep(0.05)
    return proxy, f"http://{json.loads(ready.read_text())['edge']}"


def upload(edge, destination, name, content):
    args = {"filename": name, "content_base64": base64.b64encode(content).decode(),
            "destination": destination}
    body = json.dumps({"tool_name": "file_manager:upload", "args": args}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{edge}/call", body)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def signature(url, key, given):
    """Botocore's own, for the same moment. moto can't check signatures of URLs."""
    expires = int(given["X-Amz-Expires"])
    signer = S3SigV4QueryAuth(Credentials(*key), "s3", "eu-west-1", expires=expires)
    request = AWSRequest("GET", url)
    request.context["timestamp"] = given["X-Amz-Date"]
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return signer.signature(text, request)


def check(what, good):
    print(("ok: " if good else "FAIL: ") + what)
    if not good:
        sys.exit(1)


def run(edge, endpoint, key):
    s3 = client("s3", endpoint, key)
    for destination, prefix in [("plain", "ati-uploads"), ("signed", "deep/er")]:
        for name, content in [("a b+ü&=.txt", b"hello" * 9), ("big.bin", os.urandom(9 << 20)), ("empty", b"")]:
            status, answer = upload(edge, destination, name, content)
            check(f"{destination} takes {name}: {answer.get('error')}", status == 200)
            result = answer["result"]
            path = urllib.parse.unquote(urllib.parse.urlparse(result["url"]).path)
            stored = path.removeprefix("/uploads/")
            pattern = rf"{prefix}/\d{{4}}-\d\d-\d\d/[0-9a-f-]{{36}}-{re.escape(name)}"
            check(f"it is named {stored}", re.fullmatch(pattern, stored) is not None)
            found = s3.get_object(Bucket="uploads", Key=stored)
            same = found["Body"].read() == content and found["ContentType"] == result["content_type"]
            digest = hashlib.sha256(content).hexdigest()
            check("bytes, type and digest match", same and result["sha256"] == digest)
            plain, _, query = result["url"].partition("?")
            if destination == "plain":
                check("its URL has no query", query == "")
            else:
                given = dict(urllib.parse.parse_qsl(query))
                check("its URL is signed as botocore signs it",
                      given["X-Amz-Signature"] == signature(plain, key, given))
    status, answer = upload(edge, "wrong", "x", b"x")
    refused = status == 502 and "SignatureDoesNotMatch" in answer["error"]
    check(f"a wrong secret is refused: {answer['error'][:90]}", refused)
    check("the answer has no credential", key[0] not in answer["error"] and key[1] not in answer["error"])


def run_skills(edge, endpoint, key):
    s3 = client("s3", endpoint, key)
    document = "---\nname: {0}\ndescription: About {0}\n---\nText of {0}\n"
    names = [f"skill-{n:04}" for n in range(1005)]
    for name in names:
        s3.put_object(Bucket="uploads", Key=f"team/skills/{name}/SKILL.md", Body=document.format(name).encode())
    odd = "references/a b+ü&='~(1).md"
    s3.put_object(Bucket="uploads", Key=f"team/skills/skill-0000/{odd}", Body="odd".encode())

    def get(path):
        with urllib.request.urlopen(f"{edge}/skillati/{path}") as answer:
            return json.load(answer)
    found = [skill["name"] for skill in get("catalog")["skills"]]
    check(f"a bucket of {len(found)} skills is listed, page by page", found == names)
    check("its files are found", get("skill-0000/resources")["resources"] == [odd])
    check("an odd name is read", get(f"skill-0000/file?path={urllib.parse.quote(odd)}")["content"] == "odd")
    check("a skill is read", get("skill-1004")["content"] == "Text of skill-1004\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    binary = parser.parse_args().ati
    moto, endpoint = start_moto()
    proxy = None
    try:
        key = prepare(endpoint)
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            proxy, edge = start_ati(binary, home, endpoint, key)
            run(edge, endpoint, key)
            run_skills(edge, endpoint, key)
            log = (home / "log").read_text() + (home / "audit.jsonl").read_text()
            check("log and audit have no credential", key[0] not in log and key[1] not in log)
            proxy.terminate()
            proxy.wait(PATIENCE)
    finally:
        for process in (proxy, moto):
            if process and process.poll() is None:
                process.kill()


if __name__ == "__main__":
    main()
