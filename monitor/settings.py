"""The server's settings: environment variables ``WATCHKEEPER_<NAME>``, or command-line options.

A setting exists only if two real users would set it differently. Read by ``cli`` and ``app`` only;
every other part is handed plain values.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from monitor.domain.silence import is_time_of_day, parse_hours
from monitor.errors import UnsafeSettings


class Settings(BaseSettings):
    """What may be set. Every field has a heading in ``docs/operations.md``."""

    model_config = SettingsConfigDict(env_prefix="WATCHKEEPER_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(
        Path("watchkeeper-data"), description="Folder of the embedded SQLite database."
    )
    database_url: SecretStr | None = Field(
        None, description="PostgreSQL as postgresql://user:password@host/name; unset: SQLite."
    )
    ingest_token: SecretStr | None = Field(None, description="Token trainers send with batches.")
    read_token: SecretStr | None = Field(None, description="Token for reading and for browsers.")
    open_on_purpose: bool = Field(
        False, description="Listen beyond this machine without any token, knowing what that means."
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Host names the dashboard is reached by, beside localhost and the address.",
    )
    base_url: str = Field("", description="Address of the dashboard as people type it, for links.")
    webhook_url: SecretStr | None = Field(None, description="Where alerts are posted to.")
    webhook_secret: SecretStr | None = Field(
        None, description="Signing secret (whsec_...) of that webhook; required with it."
    )
    webhook_allow_private: list[str] = Field(
        default_factory=list,
        description="Private networks or addresses webhooks may go to, such as 127.0.0.0/8.",
    )
    quiet_hours: str = Field(
        "",
        description="When only criticals are pushed, such as 22:00-07:00 or 22:00-07:00 "
        "Europe/Amsterdam; without a zone in each run's own. Empty: never.",
    )
    digest_at: str = Field(
        "08:00", description="When the morning's digest leaves, in each run's zone. Empty: never."
    )
    ping_url: SecretStr | None = Field(
        None, description="Pinged every minute while the server works, to be missed elsewhere."
    )
    migrate: bool = Field(True, description="Bring the database to the newest schema at start.")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    def listens_beyond_loopback(self) -> bool:
        """Whether another machine could reach the server."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def refuse_unsafe(self) -> None:
        """Raise ``UnsafeSettings`` for a combination that would open the server to strangers."""
        tokens = self.ingest_token is not None and self.read_token is not None
        if self.listens_beyond_loopback() and not tokens and not self.open_on_purpose:
            raise UnsafeSettings(
                f"Listening on {self.host} without tokens would let anybody in.",
                hint="Set WATCHKEEPER_INGEST_TOKEN and WATCHKEEPER_READ_TOKEN, "
                "or WATCHKEEPER_OPEN_ON_PURPOSE=true.",
            )
        self._refuse_times()
        if self.webhook_url is not None and self.webhook_secret is None:
            raise UnsafeSettings(
                "A webhook without a signing secret could be forged.",
                hint="Set WATCHKEEPER_WEBHOOK_SECRET (whsec_ and 24 to 64 random bytes in base64).",
            )

    def _refuse_times(self) -> None:
        try:
            parse_hours(self.quiet_hours, "UTC")
        except ValueError as error:
            raise UnsafeSettings(f"WATCHKEEPER_QUIET_HOURS: {error}.") from None
        if self.digest_at and not is_time_of_day(self.digest_at):
            raise UnsafeSettings("WATCHKEEPER_DIGEST_AT is a time of day, such as 08:00.")
