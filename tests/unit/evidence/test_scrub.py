"""Secrets in every form that tools print, and lookalikes. test_store.py covers environment variables and options."""

from __future__ import annotations

import json

import pytest

from rackready.evidence.scrub import HIDDEN, scrub

SECRET = "do-not-keep-me"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f'{{"password": {{"value": "{SECRET}"}}, "n": 1}}', f'{{"password": "{HIDDEN}", "n": 1}}'),
        (f'{{"passwords": ["{SECRET}", "]{SECRET}"], "n": 1}}', f'{{"passwords": "{HIDDEN}", "n": 1}}'),
        (f'{{"secret": [[{{"a": 1}}, "{SECRET}', f'{{"secret": "{HIDDEN}"'),
        (f"passwords: [a, '{SECRET}']", f"passwords: {HIDDEN}"),
        (f"passwords: ['a', '{SECRET}'] # two", f"passwords: {HIDDEN} # two"),
        (f"{{'credential': {{'of': ('{SECRET}',)}}}}", f"{{'credential': '{HIDDEN}'}}"),
        ('{"password": 12345678}', f'{{"password": "{HIDDEN}"}}'),
        (f'"{{\\"password\\": \\"{SECRET}\\", \\"n\\": 1}}"', f'"{{\\"password\\": \\"{HIDDEN}\\", \\"n\\": 1}}"'),
        (f'"{{\\"password\\": [\\"{SECRET}\\"], \\"n\\": 1}}"', f'"{{\\"password\\": \\"{HIDDEN}\\", \\"n\\": 1}}"'),
        (f'{{"environment": ["A={SECRET}", "B=1"]}}', f'{{"environment": ["{HIDDEN}"]}}'),
        (f"db_pass = {SECRET}", f"db_pass = {HIDDEN}"),
        (f"ENCRYPTION_KEY={SECRET} A=1", f"ENCRYPTION_KEY={HIDDEN} A=1"),
        (f"private_key={SECRET}", f"private_key={HIDDEN}"),
        ("IPMI_PASSWORD=aB3,dE5fG7hI9 A=1", f"IPMI_PASSWORD={HIDDEN} A=1"),
        ("run IPMI_PASSWORD=aB3;dE&5fG7hI9; next", f"run IPMI_PASSWORD={HIDDEN}; next"),
        ('{"cmd": "X_TOKEN=a,b&c", "n": 1}', f'{{"cmd": "X_TOKEN={HIDDEN}", "n": 1}}'),
        ("BMC_PASSWORD: kZ&9qLw;Xp2", f"BMC_PASSWORD: {HIDDEN}"),
        ("a: 1\n  - bmc_password: kZ&9qLw;Xp2\nb: 2", f"a: 1\n  - bmc_password: {HIDDEN}\nb: 2"),
        ("{password: a;b, n: 1}", f"{{password: {HIDDEN};b, n: 1}}"),
        ("ipmitool -I lanplus -k MyKgKey -U u sdr", f"ipmitool -I lanplus -k {HIDDEN} -U u sdr"),
        ("StorageUser=u\nStoragePass=a,b;c\n", f"StorageUser=u\nStoragePass={HIDDEN}\n"),
        ("JobCompPass=abc", f"JobCompPass={HIDDEN}"),
        (f"node01 ansible_become_pass={SECRET} x=1", f"node01 ansible_become_pass={HIDDEN} x=1"),
        ("ansible_become_pass: a,b", f"ansible_become_pass: {HIDDEN}"),
        (f"https://h/x?TOKEN={SECRET}&n=1", f"https://h/x?TOKEN={HIDDEN}&n=1"),
        (f"psk={SECRET}", f"psk={HIDDEN}"),
        (f"password: |\n  {SECRET}\n  more\nrest: 1\n", f"password: {HIDDEN}\nrest: 1\n"),
        (f"<bmc><password>{SECRET}</password><n>1</n></bmc>", f"<bmc><password>{HIDDEN}</password><n>1</n></bmc>"),
        (f"curl -sku admin:{SECRET} https://192.0.2.1", f"curl -sku admin:{HIDDEN} https://192.0.2.1"),
        (f"curl -u 'admin:a {SECRET}' x", f"curl -u 'admin:{HIDDEN}' x"),
        (f"ipmitool -p 623 -P {SECRET} sdr", f"ipmitool -p {HIDDEN} -P {HIDDEN} sdr"),
        (f"sshpass -p {SECRET} ib_write_bw -p 18515", f"sshpass -p {HIDDEN} ib_write_bw -p 18515"),
        (f"curl -sb 's={SECRET}; t=1' x", f"curl -sb '{HIDDEN}' x"),
        (f"curl --cookie s={SECRET} -u a:{SECRET} x", f"curl --cookie {HIDDEN} -u a:{HIDDEN} x"),
        (f"curl https://docker.io/ -u a:{SECRET}", f"curl https://docker.io/ -u a:{HIDDEN}"),
        (f"docker login -u me -p {SECRET} nvcr.io", f"docker login -u me -p {HIDDEN} nvcr.io"),
        (f"helm registry login -p '{SECRET}' h", f"helm registry login -p {HIDDEN} h"),
        (f"snmpget -A {SECRET} -X '{SECRET}' h x", f"snmpget -A {HIDDEN} -X {HIDDEN} h x"),
        (f"ldapsearch -x -w {SECRET} -s sub", f"ldapsearch -x -w {HIDDEN} -s sub"),
        (f"machine h login u password {SECRET}\n1", f"machine h login u password {HIDDEN}\n1"),
        (f"machine h\n  login u\n  password {SECRET}\n", f"machine h\n  login u\n  password {HIDDEN}\n"),
        (f" neighbor 192.0.2.1 password 7 {SECRET}\n", f" neighbor 192.0.2.1 password 7 {HIDDEN}\n"),
        (f" neighbor LEAF password {SECRET}\n", f" neighbor LEAF password {HIDDEN}\n"),
        (f"openssl rsa -passin pass:{SECRET} -in k", f"openssl rsa -passin pass:{HIDDEN} -in k"),
        (f"-o username=u,vers=3.0,pass={SECRET},ro", f"-o username=u,vers=3.0,pass={HIDDEN},ro"),
        (f"-o pass={SECRET},vers=3.0,username=u", f"-o pass={HIDDEN},vers=3.0,username=u"),
        (f"https://h/x?se=1&sig={SECRET}&n=1", f"https://h/x?se=1&sig={HIDDEN}&n=1"),
        (f"https://h/x?X-Amz-Signature={SECRET}", f"https://h/x?X-Amz-Signature={HIDDEN}"),
        (f"https://h/x?token={SECRET}&n=1", f"https://h/x?token={HIDDEN}&n=1"),
        (f"HTTPS://u:{SECRET}@h/x", f"HTTPS://{HIDDEN}@h/x"),
        (f"https://u:p@{SECRET}@h/x", f"https://{HIDDEN}@h/x"),
        (f"postgres://u:p/{SECRET}@h/db", f"postgres://{HIDDEN}@h/db"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", HIDDEN),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", HIDDEN),
        ("login nvapi-abcdefghijklmnop-qrstuvwxyz", f"login {HIDDEN}"),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
        (f"x {JWT} y", f"x {HIDDEN} y"),
        (f"< Set-Cookie: session={SECRET}; Path=/\r\n1", f"< Set-Cookie: {HIDDEN}\r\n1"),
        ("root:$6$abcdefgh$0123456789:19000:0", f"root:{HIDDEN}:19000:0"),
        (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}\n-----END PGP PRIVATE KEY BLOCK-----\n1", f"{HIDDEN}\n1"),
    ],
)
def test_a_secret_is_hidden_and_the_rest_stays(text: str, left: str) -> None:
    assert scrub(text) == left
    assert scrub(left) == left, "what was scrubbed is scrubbed again where it is judged again"


@pytest.mark.parametrize(
    "text",
    [
        (
            '{"password_expired": false, "MinPasswordLength": 12, "max_tokens": [128, 256], "time_per_token": '
            "[1.5, 2], "
            '"pkcs": {}}'
        ),
        "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus",
        "http://192.0.2.1:8000/x@y tcp://192.0.2.1:5555 and root@node02",
        "sshd: Permission denied (publickey,password).",
        "hf_model_path = /models/llama, mask-1 task-2 ghost_x eyJ",
        "docker run -p 8080:80 x; podman ps -p; last login -p; helm list",
        "ok=3,pass=12,fail=0 and neighbor 192.0.2.1 is up; the default password is set",
        "terminated by sig=9; x?n=1&size=2",
        "A -> B, <token count>, cookiecutter, -p 18515, pass 3 of 4",
        '{"env": {}, "environment": "rack", "keys": ["a"], "auth": null}',
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert scrub(text) == text


def test_a_document_stays_one() -> None:
    text = json.dumps(
        {
            "a": {"password": {"v": ["x", {"y": 'z"]}'}]}},
            "inner": json.dumps({"token": "x", "tokens": 5, "password": 1}),
        }
    )
    found = json.loads(scrub(text))
    assert found["a"] == {"password": HIDDEN}
    assert json.loads(found["inner"]) == {"token": HIDDEN, "tokens": 5, "password": HIDDEN}


@pytest.mark.parametrize(
    "unit",
    [
        "password",
        "a.-",
        "a://",
        "a://b:",
        "a+",
        "curl ",
        "curl -u ",
        "mysql x ",
        "ipmitool -P ",
        "bearer ",
        "authorization: ",
        "x" * 50 + "secret",
        "eyJaaaaaaaa.",
        "<password>",
        '"password": [',
        '"password": {"',
        "password ",
        'password: "',
        '\\"password\\": \\"',
        "-----BEGIN A ",
        "hf_a",
        "$1$",
        "cookie: ",
        "password: |\n ",
        '"env": [',
        " ",
        "--password ",
        "docker login ",
        "docker login -p",
        "machine a login b ",
        "neighbor a password ",
        "username=a,",
        "snmpget -A ",
        "ldapsearch ",
        "curl -b ",
        "?sig=",
        "-passin pass:",
    ],
    ids=repr,
)
def test_time_grows_with_the_length_alone(unit: str) -> None:
    """200 KB of what sends a pattern back again and again: with the square of the length it would take many minutes."""
    text = unit * (200_000 // len(unit))
    assert len(scrub(f"{text} password")) <= 2 * len(text)
    assert scrub(f'{{"password": ["{text}')


def test_backslashes_without_end_are_looked_at_once() -> None:
    assert scrub('{"password": ["' + "\\" * 200_000) == f'{{"password": "{HIDDEN}"'
