# The image of launch.serve. Build it in the root of the repository:
#   docker build -f launch/cluster/serving/serve.Dockerfile -t registry/t2t-serve .
#   docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8500:8500 -p 127.0.0.1:8501:8501 \
#       -v "$PWD/saved_models/mine:/models/translation:ro" registry/t2t-serve
FROM python:3.12-slim
WORKDIR /app
COPY setup.py pyproject.toml README.md LICENSE ./
COPY t2t_keras t2t_keras
COPY launch launch
# fast is for --engine=ctranslate2, remote for --export_dir=s3://...
RUN pip install --no-cache-dir '.[serve,fast,remote]'
# The server only reads models, so any user other than root is suitable.
USER 65534:65534
# Prints log lines without delay.
ENV PYTHONUNBUFFERED=1
EXPOSE 8500 8501
# The status is 503 until a version is served.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/v1/models/translation', timeout=4)"]
# For several models, put --export_dir= --model_config_file=/config/models.config after the name of the image.
# The server listens on all addresses of the container; `docker run -p` selects those of the host.
ENTRYPOINT ["t2t-serve", "--host=0.0.0.0", "--export_dir=/models/translation"]
