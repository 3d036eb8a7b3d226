"""A Spark standalone cluster out of the pip package: a master and workers, stopped whatever happens."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from kclient_quota.spark.session import java_home

WAIT_S = 180
JARS = Path(pyspark.__file__).parent / "jars"
SCALA = "2.13"
# What Spark's own launcher passes beside, for Java 17 and later.
OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")


class Standalone:
    """Use as a context manager; `url` is the master's."""

    def __init__(self, folder, workers=2, memory="768m"):
        self.folder = folder
        self.workers = workers
        self.memory = memory
        self.url = ""
        self._processes = []

    def __enter__(self):
        try:
            master = self._start("master.Master", "master", "--port", "0", "--webui-port", "0")
            self.url = self._await(master, r"Starting Spark master at (spark://\S+)")
            sizes = ("--cores", "1", "--memory", self.memory)
            for number in range(self.workers):
                work = ("--work-dir", str(self.folder / f"work-{number}"), "--port", "0", "--webui-port", "0")
                self._start("worker.Worker", f"worker-{number}", *sizes, *work, self.url)
            self._await(master, *[r"Registering worker \S+ with 1 cores"] * self.workers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()

    def _start(self, name, log, *arguments):
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        command = [str(java_home() / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", *opened]
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(JARS.parent),
            "SPARK_SCALA_VERSION": SCALA,  # which workers look for in build directories otherwise
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                [
                    *command,
                    "-cp",
                    str(JARS / "*"),
                    f"org.apache.spark.deploy.{name}",
                    "--host",
                    "127.0.0.1",
                    *arguments,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        process.log = self.folder / log
        self._processes.append(process)
        return process

    def _await(self, process, *patterns):
        """Until its log has as many lines of each; returns what the first line's group says."""
        deadline = time.monotonic() + WAIT_S
        while True:
            text = process.log.read_text(errors="replace")
            if all(len(re.findall(pattern, text)) >= patterns.count(pattern) for pattern in patterns):
                found = re.search(patterns[0], text)
                return found[1] if found.groups() else found[0]
            assert process.poll() is None, text[-3_000:]
            assert time.monotonic() < deadline, text[-3_000:]
            time.sleep(0.1)
