"""Where raw outputs go that all machines share: a folder, or a bucket of an object store with the S3 API."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue

from rackready.model.base import Model, SecretRef, Word

_NO_FOLDER = "write raw_outputs: PATH for a folder, or raw_outputs: {s3: ...} for an object store; it cannot be both"


class ObjectStore(Model):
    """A bucket of an object store with the S3 API. Objects are addressed by path: ENDPOINT/BUCKET/PREFIX/..."""

    endpoint: str = Field(
        pattern=r"^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$",
        description="address of the S3 API, without a path: https://s3.example.com. http:// sends outputs unencrypted",
    )
    bucket: str = Field(
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="bucket; it must exist, rackready makes none"
    )
    prefix: str = Field(
        "rackready",
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
        description="begin of every object's key",
    )
    region: Word = Field("us-east-1", description="region in signatures, as the store is configured")
    access_key: SecretRef = Field(description="place of the access key's id")
    secret_key: SecretRef = Field(description="place of the secret access key")
    ca: Path | None = Field(
        None, description="CA certificate (PEM) of the store, beside those of the system; for https:// only"
    )

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        if self.ca is not None and self.endpoint.startswith("http://"):
            message = "ca needs an endpoint with https://"
            raise ValueError(message)
        return self

    def __str__(self) -> str:
        """Return the name of the bucket for messages."""
        return f"bucket {self.bucket} of {self.endpoint}"


class SharedOutputs(Model):
    """One of the two forms. A path alone is the folder."""

    folder: Path | None = Field(None, description="folder that all machines share")
    s3: ObjectStore | None = Field(None, description="bucket of an object store with the S3 API")

    @model_validator(mode="before")
    @classmethod
    def _one_form(cls, value: Any) -> Any:  # noqa: ANN401 - what YAML holds
        if isinstance(value, (str, Path)):
            return {"folder": value}
        if isinstance(value, dict) and ("folder" in value or value.get("s3") is None):
            raise ValueError(_NO_FOLDER)
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: Any,  # noqa: ANN401 - pydantic's own
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        """Return the schema of both forms, as people write them."""
        made = handler(core_schema)
        own = handler.resolve_ref_schema(made)
        store = {**own, "properties": {"s3": own["properties"]["s3"]}, "required": ["s3"]}
        store["properties"]["s3"] = next(one for one in own["properties"]["s3"]["anyOf"] if "$ref" in one)
        own.clear()
        own.update({"anyOf": [{"type": "string", "format": "path"}, store]})
        return made

    def __str__(self) -> str:
        """Return the place for messages."""
        return str(self.s3 or f"folder {self.folder}")
