# The image of launch.serve, made in the repository's root:
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
# It reads models and writes nothing, so any user that is not root will do.
USER 65534:65534
# Log lines come when they are written.
ENV PYTHONUNBUFFERED=1
EXPOSE 8500 8501
# Status 503 while no version is served.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/v1/models/translation', timeout=4)"]
# Several models: --export_dir= --model_config_file=/config/models.config behind the image's name.
# Inside of the container every address; which of the host's are reached is `docker run -p`'s to say.
ENTRYPOINT ["t2t-serve", "--host=0.0.0.0", "--export_dir=/models/translation"]
