"""Takes secrets out of captured output before it is stored. Measurements stay as they are: stored output is judged again."""

from __future__ import annotations

import re

HIDDEN = "[scrubbed]"

_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL)
_NCCL_ENVIRONMENT = re.compile(r'("env"\s*:\s*)\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*(?:"|\\?\Z))*\]?', re.DOTALL)
"""nccl-tests' JSON document holds the whole environment of its process; what was cut off within it ends there."""
_NAMED = re.compile(
    r"""
    (?P<name>(?i:\b[\w.-]*(?:password|passwd|passphrase|secret|token(?![A-Za-z])|(?:api|access|private|account|storage)[_-]?key|credential)[\w.-]*
          | \b\w*(?:db|ssh|sql|pg|root|user|admin|bmc|ipmi|ldap|smtp|ftp|http|proxy)pass\b | \b\w*_auth\b | (?<=")auth(?="))
      | \b[A-Z0-9_]*_(?:PASS|PWD|JWT|KEY)\b)                          # as environments name them: DB_PASS, MYSQL_PWD, SLURM_JWT, MUNGE_KEY
    (?P<sign>["']?\s*[=:]\s*)
    (?P<value>"(?:[^"\\\n]|\\.)*"? | '[^'\n]*'? | [^\s"',;&]+)
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)[\]}]*\Z")
_AUTHORIZATION = re.compile(r"(?i)\b(?P<kind>authorization[\"']?\s*[:=]\s*[\"']?(?:[a-z]+\s+)?|bearer\s+)(?P<value>[A-Za-z0-9._~+/=:-]{4,})")
_OPTION = re.compile(
    r"""
    (?P<before>
        \b(?:ipmitool|ipmi-\w+)\b[^\n]*?\s-[Pp]\s*
      | \b(?:sshpass|racadm|redfishtool)\b[^\n]*?\s-p\s*
      | \bmysql\w*\b[^\n]*?\s-p(?=\S)                                   # with a blank it asks
      | \bcurl\b[^\n]*?\s(?:-u|--user)[ =]?\s*[^\s:]*:
      | (?<![\w-])--(?:[a-z0-9]+-)*(?:password|passwd|passphrase|token|secret|(?:api|access|private)-key)\ +(?!-)
    )
    (?P<value>[^\s"']+|"[^"\n]*"?|'[^'\n]*'?)
    """,
    re.VERBOSE,
)
"""Programs whose -p is a password are named: elsewhere it is a port or a number of processes (perftest's -p 18515)."""
_URL = re.compile(r'(?P<scheme>\bhttps?://(?=[^/\s"]*@)|\b[a-z][a-z0-9+.-]*://(?=[^/\s:@"]*:[^/\s"]*@))[^/\s"]*@')
"""What stands before the host: user and password, a password alone, and over HTTP a token alone as well."""

_MAY_HOLD = re.compile(
    r"(?i)passw|passphrase|secret|token|(?:api|access|private|account|storage)[_-]?key|_key\b|credential|\wpass\b|_pwd\b|_jwt\b|auth|bearer|ipmi|curl"
    r"|racadm|redfishtool|mysql"
)
"""What the three before the last are about: most outputs hold none of it, and are looked through once for all three."""


def scrub(text: str) -> str:
    """Return the text without private keys, environment dumps, named secrets and passwords in URLs and options."""
    text = _PEM.sub(HIDDEN, text)
    text = _NCCL_ENVIRONMENT.sub(rf'\g<1>["{HIDDEN}"]', text)
    if _MAY_HOLD.search(text):
        text = _AUTHORIZATION.sub(rf"\g<kind>{HIDDEN}", text)
        text = _NAMED.sub(_named, text)
        text = _OPTION.sub(rf"\g<before>{HIDDEN}", text)
    return _URL.sub(rf"\g<scheme>{HIDDEN}@", text)


def _named(found: re.Match[str]) -> str:
    """Return the name with its value hidden, in the quotes that it had. A number in a JSON document is a measurement (time_per_token), no secret."""
    sign, value = found["sign"], found["value"]
    if sign[0] == '"' and _PLAIN.match(value):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    end = quote if len(value) > 1 and value.endswith(quote) else ""
    return f"{found['name']}{sign}{quote}{HIDDEN}{end}"
