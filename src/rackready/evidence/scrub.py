"""Removes secrets from output before it is stored or shown. Measurements stay: stored output is judged again.

Output may be large and is not ours. Where a pattern may backtrack, it looks at a bounded number of characters, so that
the time grows with the length of the text and not with its square.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

HIDDEN = "[scrubbed]"

_PEM = re.compile(
    r"-----BEGIN (?P<kind>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL
)
_ENVIRONMENT = re.compile(
    r'("(?:env|Env|environ|environment|Environment)"\s*:\s*)\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))*+\]?', re.DOTALL
)
"""nccl-tests' JSON document and a container's description hold a whole environment. A cut one ends with the text."""

_WORDS = r"(?:password|passwd|passphrase|secret|credential)"
_KEYS = r"(?:api|access|private|account|storage|encryption|signing|master|ssh|shared|deploy)[_-]?key"
_NAMED = re.compile(
    rf"""
    (?P<name>(?i:(?:{_WORDS} | token(?![A-Za-z]) | {_KEYS})[\w.-]{{0,128}}+
          | (?:db|ssh|sql|pg|root|user|admin|bmc|ipmi|ldap|smtp|ftp|http|proxy)_?pass\b
          | (?:become|sudo|storage|jobcomp)_?pass\b
          | _auth\b | (?<=")auth(?=\\{{0,8}}") | (?<![\w-])psk\b)
      # as in environments: DB_PASS, MYSQL_PWD, SLURM_JWT, MUNGE_KEY
      | (?<=[A-Z0-9])_(?:PASS|PWD|JWT|KEY)\b)
    (?P<sign>(?:\[\w{{0,16}}\])?\\{{0,8}}["']?\]?\s*+(?:=>|:=|==|[=:])\s*)
    """,
    re.VERBOSE,
)
_VALUE = re.compile(
    r"""
    (?P<block>[|>][+-]?[^\S\n]*\n(?:[^\S\n]+[^\n]*(?:\n|\Z))+)                       # YAML
  | (?P<quote>["'])(?P<quoted>(?:(?!(?P=quote))[^\\\n]|\\.)*+)(?P=quote)?            # JSON, shells
  | (?P<level>\\{1,8})(?P<inner>["'])(?:(?!(?<!\\)(?P=level)(?P=inner))[^\n])*+      # JSON within a string
  | (?P<plain>[^\s"',;&]+)
    """,
    re.VERBOSE,
)
_WIDE = re.compile(r"[^\s\"']*[^\s\"',;&]")
"""A plain value with marks in it: passwords have them, and these names have no second value behind a mark."""
_OF_LINE = re.compile(r"(?:\A|\n)[^\S\n]*(?:-[^\S\n]+)?(?:export[^\S\n]+)?[\w.-]*\Z")
_OF_ENVIRONMENT = re.compile(r"(?:\A|[^?&\w.-])[A-Z0-9_]*\Z")
_UPPER = re.compile(r"[A-Z0-9_]+")
_BEFORE = 160
"""Characters before a name that decide how far its value extends."""
_TURN = re.compile(r"(?P<level>(?<!\\)\\*+)(?P<quote>[\"'])|(?P<bracket>[\[\]{}])")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS_OF_JSON = frozenset({"true", "false", "null"})
_MARKS = "\"'\\"
"""Characters that begin the rest of a quoted name."""
_ONLY = re.compile(rf"(?i){_WORDS}s?\Z")

_AUTHORIZATION = re.compile(
    r"(?i)\b(?P<kind>authorization[\"']?\s*+[:=]\s*[\"']?(?:[a-z]+\s+)?|bearer\s+)(?P<value>[A-Za-z0-9._~+/=:-]{4,})"
)
_COOKIE = re.compile(
    r"(?i)(?<![\w-])(?P<kind>(?:set-)?cookie2?[^\S\n]{0,8}:[^\S\n]{0,8})(?P<value>[^\s\"'][^\r\n\"']*)"
)
_ELEMENT = re.compile(
    rf"(?i)(?P<tag><[\w:.-]{{0,64}}?(?:{_WORDS}|token|{_KEYS})[\w:.-]{{0,64}}+(?:\s[^<>]{{0,256}}+)?>)[^<]++(?=</)"
)

_PROGRAM = re.compile(r"\b(?P<program>ipmitool|ipmi-\w+|sshpass|racadm|redfishtool|mysql\w*|curl|redis-cli)\b")
_OF_PROGRAM = {
    # ipmitool(1): -P password, -y and -k Kg keys; FreeIPMI's common options: -p password, -k Kg key
    "ipmi": re.compile(r"(?P<before>\s-[PpYyk]\s*)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),
    "curl": re.compile(
        r"(?P<before>\s(?:(?:-[A-Za-z]{0,16}[uU]|--(?:proxy-)?user)[ =]?\s*(?P<q>[\"'])?[^\s:\"']*:"
        r"|(?:-[sSkLfviI]{0,8}b|--cookie)[ =]?\s*(?P<c>[\"'])?))(?P<value>(?(q)[^\"'\n]*|(?(c)[^\"'\n]*|[^\s\"']+)))"
    ),
    "mysql": re.compile(r"(?P<before>\s-p)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),  # with a blank it asks
    "redis": re.compile(r"(?P<before>\s-a\s*)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),
    "": re.compile(r"(?P<before>\s-p\s*)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),
}
"""Programs whose options carry a password: elsewhere -p is a port or a number of processes (perftest's -p 18515)."""
_MANAGER = re.compile(
    r"\b(?P<program>snmp[a-z]{2,16}|ldap(?:search|add|modify|delete|whoami|passwd|compare|modrdn|exop))\b"
)
"""Programs that are names of hosts as often: they are looked for apart, and end no options of the programs above."""
_OF_MANAGER = {
    "snmp": re.compile(r"(?P<before>\s-[AXc]\s*)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),  # snmpcmd(1)
    "ldap": re.compile(r"(?P<before>\s-w\s*)(?P<value>[^\s\"']+|\"[^\"\n]*\"?|'[^'\n]*'?)"),  # ldapsearch(1): -W asks
}
_FORM = re.compile(
    r"""(?i)
    (?P<before>
      \b(?:machine\s{1,8}\S{1,256}|default)\s{1,8}login\s{1,8}\S{1,256}\s{1,8}(?:account\s{1,8}\S{1,256}\s{1,8})?
        password\s{1,8}                                                                      # .netrc
    | \bmachine\s{1,8}\S{1,256}\s{1,8}password\s{1,8}
    | \bneighbor[ \t]{1,8}\S{1,128}[ \t]{1,8}password[ \t]{1,8}(?:\d[ \t]{1,8})?           # BGP of FRR, EOS, NX-OS
    | (?<![\w-])-pass(?:in|out)?[ \t]{1,8}["']?pass:                           # openssl-passphrase-options(1)
    | \b(?:docker|podman|nerdctl|helm)(?:[ \t]{1,8}[^\s"';|&]{1,64}){0,3}?[ \t]{1,8}login\b
        [^\n;|&]{0,256}?[ \t]-p[ =]?[ \t]{0,8}
    )
    (?P<value>[^\s"']+|"[^"\n]*"?|'[^'\n]*'?)
    """,
    re.VERBOSE,
)
_IN_LIST = re.compile(
    r"""(?i)
    (?P<before>
      \buser(?:name)?=[^\s,]{1,128},(?:[^\s,]{1,64},){0,8}pass=   # mount.cifs(8)
    | (?<![\w-])pass=(?=[^\s,]{1,128},(?:[^\s,]{1,64},){0,8}user(?:name)?=)
    | [?&;](?:sig|(?:x-(?:amz|goog)-)?signature)=                  # signed URLs of Azure, AWS, Google
    )
    (?P<value>[^\s"'&,;\#<>]+)
    """,
    re.VERBOSE,
)
_FORMS = {_FORM: ("login", "machine", "neighbor", "-pass"), _IN_LIST: ("pass=", "sig=", "signature=")}
"""Forms without a name and a sign before the secret -> what each of them has: most outputs have none of it."""
_OPTION = re.compile(
    r"""
    (?P<before>
      (?<![\w-])--(?:[a-z0-9]{1,32}-){0,8}
      (?:password|passwd|passphrase|token|secret|(?:api|access|private)-key)\ +(?!-))
    (?P<value>[^\s"']+|"[^"\n]*"?|'[^'\n]*'?)
    """,
    re.VERBOSE,
)
_URL = re.compile(
    r"""(?i)
    (?P<scheme>(?:(?<=\bhttp)|(?<=\bhttps))://(?=[^/\s"]*@) | (?<=[a-z0-9+.-])://(?=[^/\s:@"]*:[^/\s"]*@))[^/\s"]*@
  | (?P<slashed>(?<=[a-z0-9+.-])://)[^/\s:@"]{0,256}:(?!\d{1,5}[/?\#])[^\s"@]{1,256}@
    """,
    re.VERBOSE,
)
"""The part before the host: user and password (which may hold a slash), a password, and over HTTP a token."""
_BARE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{16,}+|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+|glpat-[\w-]{16,}+|nvapi-[\w-]{16,}+|xox[abprs]-[\w-]{10,}+"
    r"|A(?:KIA|SIA)[A-Z0-9]{12,}+|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+)|\$(?:1|2[abxy]|5|6|7|y|gy)\$[^\s:\"']{8,}+"
)
"""Tokens with a known prefix (Hugging Face, GitHub, GitLab, NGC, Slack, AWS, JWT), and passwords as in /etc/shadow."""
_BARE_MARKS = ("hf_", "gh", "glpat-", "nvapi-", "xox", "AKIA", "ASIA", "eyJ", "$")

_MAY_HOLD = (
    *(
        "pass",
        "secret",
        "credential",
        "token",
        "psk",
        "_key",
        "-key",
        "apikey",
        "accesskey",
        "privatekey",
        "accountkey",
        "storagekey",
        "encryptionkey",
    ),
    *(
        "signingkey",
        "masterkey",
        "sshkey",
        "sharedkey",
        "deploykey",
        "_pwd",
        "_jwt",
        "auth",
        "bearer",
        "cookie",
        "ipmi",
        "curl",
        "racadm",
        "redfishtool",
    ),
    *("mysql", "redis-cli", "docker", "podman", "nerdctl", "helm", "snmp", "ldap", "sig=", "signature="),
)
"""Words that a secret needs. Most outputs hold none of them, and one search shows that."""


def scrub(text: str) -> str:
    """Return the text without private keys, environments, tokens, named secrets, and passwords in URLs and options."""
    if "PRIVATE KEY" in text:
        text = _PEM.sub(HIDDEN, text)
    text = _ENVIRONMENT.sub(rf'\g<1>["{HIDDEN}"]', text)
    lower = text.lower()
    if _may_hold(lower):
        text = _AUTHORIZATION.sub(rf"\g<kind>{HIDDEN}", text)
        text = _COOKIE.sub(rf"\g<kind>{HIDDEN}", text)
        text = _ELEMENT.sub(rf"\g<tag>{HIDDEN}", text)
        text = "".join(_named(text))
        text = "".join(_options(text, _PROGRAM, _OF_PROGRAM))
        if "snmp" in lower or "ldap" in lower:
            text = "".join(_options(text, _MANAGER, _OF_MANAGER))
        for form, marks in _FORMS.items():
            if any(mark in lower for mark in marks):
                text = form.sub(rf"\g<before>{HIDDEN}", text)
        text = _OPTION.sub(rf"\g<before>{HIDDEN}", text)
    if "://" in text:
        text = _URL.sub(_address, text)
    return _BARE.sub(HIDDEN, text) if any(mark in text for mark in _BARE_MARKS) else text


def _may_hold(lower: str) -> bool:
    for word in _MAY_HOLD:  # noqa: SIM110 - `any` takes twice as long, and a report asks for each of its texts
        if word in lower:
            return True
    return False


def _address(found: re.Match[str]) -> str:
    return f"{found['scheme'] or found['slashed']}{HIDDEN}@"


def _named(text: str) -> Iterator[str]:
    """Yield the text with the values of named secrets hidden. No part is searched for two names."""
    at = 0
    while found := _NAMED.search(text, at):
        yield text[at : found.end()]
        at = found.end()
        if text[at : at + 1] in {"[", "{"}:
            end = _closing(text, at, within_line=found["sign"][0] not in _MARKS)
            yield _several(text[at:end], found["name"], found["sign"])
            at = end
        elif value := _VALUE.match(text, at):
            yield _hidden(value, found["name"], found["sign"])
            wide = _WIDE.match(text, at) if value["plain"] and _is_alone(text, found) else None
            at = wide.end() if wide else value.end()
    yield text[at:]


def _is_alone(text: str, found: re.Match[str]) -> bool:
    """Return whether a name has its line or its word for itself: a variable, or the first word of a line.

    In a query (?token=x&n=1), a list of options and a connection string the next mark ends a value.
    """
    if found["sign"][0] in _MARKS:
        return False
    before = text[max(0, found.start() - _BEFORE) : found.start()]
    before = before if len(before) < _BEFORE else f"?{before}"  # cut: what is its first character begins no line
    variable = found["sign"] == "=" and _UPPER.fullmatch(found["name"]) and _OF_ENVIRONMENT.search(before)
    return bool(variable or _OF_LINE.search(before))


def _several(inside: str, name: str, sign: str) -> str:
    """Return the replacement of a list or an object. Numbers in a JSON document are measurements."""
    hide = sign[0] not in _MARKS or '"' in inside or "'" in inside or _ONLY.match(name)
    return _as_name(sign) if hide else inside


def _as_name(sign: str) -> str:
    """Return the replacement of a number, a list or an object, quoted like its name: JSON stays JSON."""
    mark = _TURN.match(sign)
    quote = mark[0] if mark and mark["quote"] else ""
    return f"{quote}{HIDDEN}{quote}"


def _closing(text: str, start: int, *, within_line: bool) -> int:
    """Return the end of the list or object that begins here. Brackets in strings do not count.

    If it is cut off, that is the end of the text or the line.
    """
    line = text.find("\n", start) if within_line else -1
    stop = line if line >= 0 else len(text)
    depth, opened = 0, ("", "")
    for turn in _TURN.finditer(text, start, stop):
        if turn["bracket"]:
            depth += 0 if opened[1] else 1 if turn["bracket"] in "[{" else -1
            if depth == 0:
                return turn.end()
        elif not opened[1]:
            opened = (turn["level"], turn["quote"])
        elif turn["quote"] == opened[1] and (
            turn["level"] == opened[0] or (not opened[0] and len(turn["level"]) % 2 == 0)
        ):
            opened = ("", "")
    return stop


def _hidden(value: re.Match[str], name: str, sign: str) -> str:
    """Return the replacement of a value, in its quotes.

    A number in a JSON document is a measurement (time_per_token), no secret, unless its name ends with password; true,
    false and null never are secrets.
    """
    if value["block"]:
        return f"{HIDDEN}\n"
    if value["level"]:
        return f"{value['level']}{value['inner']}{HIDDEN}"
    if value["plain"]:
        if sign[0] not in _MARKS:
            return HIDDEN
        plain = value["plain"].rstrip("]}")
        if plain in _WORDS_OF_JSON or (_NUMBER.fullmatch(plain) and not _ONLY.match(name)):
            return value[0]
        return f"{_as_name(sign)}{value[0].removeprefix(plain)}"
    quote = value["quote"]
    end = quote if len(value[0]) > 1 and value[0].endswith(quote) else ""
    return f"{quote}{HIDDEN}{end}"


def _options(text: str, programs: re.Pattern[str], of: Mapping[str, re.Pattern[str]]) -> Iterator[str]:
    """Yield the text with passwords in the options of programs hidden.

    A program's options extend to the end of its line, or to the next program.
    """
    at = 0
    while found := programs.search(text, at):
        yield text[at : found.end()]
        following = programs.search(text, found.end())
        stop = following.start() if following else len(text)
        line = text.find("\n", found.end(), stop)
        at = line if line >= 0 else stop
        program = found["program"]
        pattern = next(pattern for name, pattern in of.items() if program.startswith(name))
        # A program that sshpass starts has options of its own.
        yield pattern.sub(rf"\g<before>{HIDDEN}", text[found.end() : at], count=int(program == "sshpass"))
    yield text[at:]
