"""Spark's own Kafka connector, where its artefacts can be had: the same columns, read by the JVM, not paced by a quota.

The connector's version has to be Spark's own, to the last digit: classes that it refers to come and go in between.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.version import __version__ as spark_version

from kclient_quota.config import QUOTA_KEYS
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.reading import SCHEMA, kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
FORMAT: Final = "kafka"
_GROUP: Final = "org.apache.spark"
_ARTEFACTS: Final = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
_INSTEAD: Final = "leave the connector jvm out: kclient-quota's own source needs no artefacts"
_TIMEOUT_S: Final = 10
_MISSING: Final = 404
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OPTIONS: Final = frozenset(
    name.lower()
    for name in (
        *("subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("failOnDataLoss", "minPartitions", "maxOffsetsPerTrigger", "includeHeaders"),
    )
)


def connector_settings(
    jars: Path | str | None = None, *, version: str = spark_version, repository: str = MAVEN_CENTRAL
) -> dict[str, str]:
    """Settings for `session.session` that bring the connector.

    Args:
        jars: directory with the connector's jars and theirs; None: they are fetched from `repository`.
        version: of Spark.
        repository: a Maven repository.

    Raises:
        ConfigError: there are no jars in the directory, or the repository has none for this version of Spark.
        ClusterError: the repository does not answer.
    """
    if jars is not None:
        found = sorted(map(str, Path(jars).glob("*.jar")))
        if not found:
            raise ConfigError(f"{jars}: no jars there; put Spark's Kafka connector {version} into it, or {_INSTEAD}")
        return {"spark.jars": ",".join(found)}
    for artefact in _ARTEFACTS:
        if not _exists(f"{repository}/{_GROUP.replace('.', '/')}/{artefact}/{version}/{artefact}-{version}.pom"):
            raise ConfigError(
                f"Spark's Kafka connector for Spark {version} cannot be had: {repository} has no "
                f"{_GROUP}:{artefact}:{version}; give a directory with its jars, or {_INSTEAD}"
            )
    return {"spark.jars.packages": f"{_GROUP}:{_ARTEFACTS[0]}:{version}", "spark.jars.repositories": repository}


def _exists(url: str) -> bool:
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the caller's own repository
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310 - as above
            return True
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _MISSING:
                return False
        raise ClusterError(f"{url}: {error}; {_INSTEAD}") from error
    except OSError as error:
        raise ClusterError(f"{url}: {error}; give a directory with the jars, or {_INSTEAD}") from error


def read_kafka(spark: "SparkSession", options: Mapping[str, str], *, is_stream: bool = False) -> "DataFrame":
    """A topic through the JVM's connector, in the columns of `KafkaSource`.

    Args:
        spark: a session that was made with `connector_settings`.
        options: as `KafkaSource` takes them, without those that only it has.
        is_stream: of a stream.

    Raises:
        ConfigError: the session has no connector, or it has no such option.
    """
    for name in options:
        if not name.startswith("kafka.") and name.lower() not in _OPTIONS:
            raise ConfigError(f"Spark's own Kafka connector has no option {name}; {_INSTEAD}")
    given = {name: value for name, value in options.items() if not name.startswith("kafka.")}
    given |= {f"kafka.{name}": str(value) for name, value in java_options(kafka_options(options)).items()}
    reader = (spark.readStream if is_stream else spark.read).format(FORMAT).options(**given)
    try:
        frame = reader.load()
    except AnalysisException as error:
        if "find data source" not in str(error) and "deploying" not in str(error).lower():
            raise
        raise ConfigError(
            "this Spark session has no Kafka connector of the JVM: make it with "
            f"session(settings=connector_settings()), or {_INSTEAD}"
        ) from error
    return frame.select(*SCHEMA.names, *[name for name in frame.columns if name not in SCHEMA.names])


def java_options(conf: Mapping[str, Any]) -> dict[str, Any]:
    """A connection in Java's words instead of librdkafka's, without kclient-quota's keys, which nothing there knows.

    Raises:
        ConfigError: a SASL mechanism that has no user and password.
    """
    known = {name: value for name, value in conf.items() if name not in QUOTA_KEYS}
    mechanism = known.pop("sasl.mechanisms", None) or known.pop("sasl.mechanism", None)
    user, password = known.pop("sasl.username", None), known.pop("sasl.password", None)
    authorities = known.pop("ssl.ca.location", None)
    if authorities:
        known |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authorities}
    if mechanism:
        known["sasl.mechanism"] = mechanism
    if user:
        if mechanism != "PLAIN" and not str(mechanism).startswith("SCRAM-"):
            raise ConfigError(f"sasl.mechanisms {mechanism}: set kafka.sasl.jaas.config as Java's clients take it")
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        known["sasl.jaas.config"] = f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return known


def _quoted(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"')
