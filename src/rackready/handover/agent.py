"""Signing with a key in an ssh-agent: the private half stays there."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

import paramiko
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from paramiko.agent import AgentKey

from rackready.handover.dsse import SignatureError, key_blob, key_id

SOCKET = "SSH_AUTH_SOCK"
_NEXT = "Start the agent and add the key (`ssh-add FILE`), or correct certificates.agent_key."


@dataclass(frozen=True, slots=True)
class AgentKeySigner:
    """A key in the ssh-agent of this process."""

    public: Ed25519PublicKey

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data. Raises SignatureError when no agent has the key, or when it refuses."""
        try:
            with closing(paramiko.Agent()) as agent:
                return self._signed(self._found(list(agent.get_keys())), data)
        except paramiko.SSHException as error:
            raise self._error(f"the ssh-agent refused: {error}", "Unlock it or confirm the use of the key.") from error
        except (OSError, EOFError) as error:
            raise self._error(f"the ssh-agent ended the connection: {str(error) or 'no answer'}", _NEXT) from error

    def _found(self, keys: list[AgentKey]) -> AgentKey:
        for key in keys:
            if key.blob == key_blob(self.public):
                return key
        if not os.environ.get(SOCKET):
            raise self._error(f"no ssh-agent ({SOCKET} is not set)", _NEXT)
        if not keys:
            raise self._error(f"no ssh-agent at {os.environ[SOCKET]}, or one without keys", _NEXT)
        raise self._error(f"keys {', '.join(key.fingerprint for key in keys)}", _NEXT)

    def _signed(self, key: AgentKey, data: bytes) -> bytes:
        """Return the plain signature: an agent answers string "ssh-ed25519", string signature (RFC 8709, 6)."""
        answer = paramiko.Message(bytes(key.sign_ssh_data(data)))
        kind, signature = answer.get_text(), answer.get_binary()
        try:
            self.public.verify(signature, data)
        except InvalidSignature as error:
            raise self._error(f"a signature of type {kind} that does not verify", "Replace the ssh-agent.") from error
        return signature

    def _error(self, actual: str, next_step: str) -> SignatureError:
        return SignatureError(
            "certificates.agent_key",
            expected=f"{key_id(self.public)} in the ssh-agent",
            actual=actual,
            next_step=next_step,
        )
