# The server, without torch: the hooks live in the trainer's environment, not here.
FROM python:3.11-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY monitor monitor
COPY trainer_hooks trainer_hooks
COPY web web
COPY migrations migrations
COPY docs/detectors docs/detectors
RUN pip install --no-cache-dir -c constraints.txt ".[server,postgres]"
RUN useradd --system --create-home --home-dir /data watchkeeper

USER watchkeeper
WORKDIR /data
VOLUME /data
EXPOSE 8765
# Beyond the loopback the server starts only with both tokens set (see docs/operations.md).
ENV WATCHKEEPER_HOST=0.0.0.0 WATCHKEEPER_DATA_DIR=/data
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8765/health/ready', timeout=4)"]
CMD ["watchkeeper", "serve"]
