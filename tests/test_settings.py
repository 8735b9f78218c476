from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from relevo import settings
from relevo.errors import SettingsError
from tests.support.logs import capture_logs

SECRET = "postgresql://ana:geheim@db/relevo"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "relevo.toml"
    path.write_text('port = 1\nhost = "file"\npool_size = 3\n')
    return path


def test_arguments_win_over_environment_over_file_over_defaults(file: Path) -> None:
    environ = {"RELEVO_PORT": "2", "RELEVO_HOST": "environment"}
    told = settings.load({"port": 3}, environ=environ, file=file)
    assert (told.port, told.host, told.pool_size) == (3, "environment", 3)
    assert told.log_level is None


def test_an_argument_of_none_was_not_given(file: Path) -> None:
    assert settings.load({"port": None}, environ={}, file=file).port == 1


def test_an_empty_variable_was_not_given(file: Path) -> None:
    assert settings.load(environ={"RELEVO_PORT": ""}, file=file).port == 1


def test_the_file_can_be_named_in_the_environment(file: Path) -> None:
    assert settings.load(environ={"RELEVO_CONFIG": str(file)}).host == "file"


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml does not exist"):
        settings.load(environ={}, file=tmp_path / "nowhere.toml")


def test_the_usual_file_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.load(environ={}) == settings.Settings()
    (tmp_path / "relevo.toml").write_text("port = 7")
    assert settings.load(environ={}).port == 7


def test_a_file_that_is_no_toml_is_refused_with_its_name(file: Path) -> None:
    file.write_text("port = = 3")
    with pytest.raises(SettingsError, match=r"relevo\.toml cannot be read"):
        settings.load(environ={}, file=file)


@pytest.mark.parametrize(
    ("value", "read"),
    [("true", True), ("1", True), ("false", False), ("0", False)],
)
def test_text_from_the_environment_becomes_what_the_setting_is(value: str, read: bool) -> None:
    environ = {
        "RELEVO_MIGRATE": value,
        "RELEVO_DRAIN_SECONDS": "2.5",
        "RELEVO_HOME": "/var/relevo",
        "RELEVO_PUBLIC_HOSTS": "a.example, b.example,",
    }
    told = settings.load(environ=environ)
    assert told.migrate is read
    assert told.drain_seconds == 2.5
    assert told.home == Path("/var/relevo")
    assert told.public_hosts == ("a.example", "b.example")


@pytest.mark.parametrize(
    ("arguments", "environ", "text"),
    [
        ({"prot": 1}, {}, r"unknown setting 'prot' \(argument\); did you mean 'port'\?"),
        ({"zzz": 1}, {}, r"unknown setting 'zzz' \(argument\)$"),
        ({}, {"RELEVO_DATBASE_URL": "x"}, "did you mean RELEVO_DATABASE_URL?"),
        ({}, {"RELEVO_SECRETKEY_FILE": "x"}, "did you mean RELEVO_SECRET_KEY_FILE?"),
        ({}, {"RELEVO_POOL_SIZES": "3"}, "did you mean RELEVO_POOL_SIZE?"),
        ({}, {"RELEVO_PORT": "many"}, r"setting 'port' \(RELEVO_PORT\)"),
        ({}, {"RELEVO_PGBOUNCER": "maybe"}, r"setting 'pgbouncer' \(RELEVO_PGBOUNCER\)"),
        ({"host_name": 7, "host": "h"}, {}, r"setting 'host_name' \(argument\)"),
        ({"pool_size": 0}, {}, "pool_size must be 1 to 1000, not 0"),
        ({"port": 70_000}, {}, "port must be 0 to 65535, not 70000"),
    ],
)
def test_what_is_unknown_or_wrong_is_refused_by_name(
    arguments: dict[str, Any], environ: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        settings.load(arguments, environ=environ)


def test_an_unknown_key_of_the_file_is_refused_with_its_place(file: Path) -> None:
    file.write_text('databse_url = "x"')
    with pytest.raises(SettingsError, match=r"'databse_url' \(.*relevo\.toml\); did you mean"):
        settings.load(environ={}, file=file)


def test_an_unknown_variable_is_named_with_the_nearest_setting() -> None:
    with capture_logs() as lines:
        settings.load(environ={"RELEVO_MAX_POOL": "3", "RELEVO_URL": "http://127.0.0.1:8080"})
    (line,) = lines
    assert line["event"] == "settings.unknown_variable"
    assert (line["variable"], line["nearest"]) == ("RELEVO_MAX_POOL", "RELEVO_POOL_SIZE")


def test_what_kubernetes_and_others_set_is_not_taken_for_settings() -> None:
    environ = {
        "RELEVO_PORT": "tcp://10.0.0.1:8080",
        "RELEVO_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "RELEVO_PORT_8080_TCP_PORT": "8080",
        "RELEVO_SERVICE_HOST": "10.0.0.1",
        "RELEVO_SERVICE_PORT": "8080",
        "RELEVO_API_PORT": "tcp://10.0.0.1:8080",
        "RELEVO_TEST_DATABASE_URL": "postgresql://elsewhere",
        "RELEVO_FAULTS_DIR": "/faults",
        "RELEVO_POSTGRES_ACCOUNT": "postgres",
        "PORTS": "3",
    }
    assert settings.load(environ=environ) == settings.Settings()


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{SECRET}\n")
    environ = {"RELEVO_DATABASE_URL_FILE": str(tmp_path / "url")}
    assert settings.load(environ=environ).database_url == SECRET
    plain = environ | {"RELEVO_DATABASE_URL": "postgresql://plain"}
    assert settings.load(environ=plain).database_url == "postgresql://plain"


def test_a_secret_file_that_cannot_be_read_is_named_by_its_variable(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="RELEVO_SECRET_KEY_FILE names a file"):
        settings.load(environ={"RELEVO_SECRET_KEY_FILE": str(tmp_path / "none")})


def test_secrets_are_never_shown() -> None:
    told = settings.Settings(database_url=SECRET, access_key="geheim", secret_key="geheim")
    console = Console(width=1000)
    with console.capture() as shown:
        console.print(told)
    for text in (repr(told), str(told), shown.get()):
        assert "geheim" not in text
        assert "port=8080" in text
    assert "database_url=None" in repr(settings.Settings())


def test_placement_groups_are_a_list_in_the_environment() -> None:
    told = settings.load(environ={"RELEVO_ACTORS_PLACEMENT_GROUPS": "default, disk-a"})
    assert told.actors_placement_groups == ("default", "disk-a")


@pytest.mark.parametrize(
    "given",
    [
        {"actors_slots": 0},
        {"actors_slots": 4_097},
        {"actors_idle_seconds": 0.0},
        {"actors_memory_max": -1},
    ],
)
def test_settings_of_actors_have_bounds(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        settings.load(given, environ={})


def test_each_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "relevo.toml"
    file.write_text('port = 9000\nhost = "0.0.0.0"\n')
    environ = {"RELEVO_POOL_SIZE": "20", "RELEVO_HOST": "10.0.0.1"}
    loaded = settings.load({"home": tmp_path}, environ=environ, file=file)
    found = settings.origins(loaded, environ=environ, file=file)
    assert found["port"] == str(file)
    assert found["host"] == "RELEVO_HOST"
    assert found["pool_size"] == "RELEVO_POOL_SIZE"
    assert found["home"] == "argument"
    assert found["lease_renew"] == "default"
    file.write_text("port = 9001\n")  # after the host has read it
    assert settings.origins(loaded, environ=environ, file=file)["port"] == "argument"
    file.write_text("port =")
    assert settings.origins(loaded, environ=environ, file=file)["lease_renew"] == "default"
