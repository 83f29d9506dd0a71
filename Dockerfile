# One image for every process; the command chooses (see Procfile and compose.yaml). No secrets inside: they come by environment or as files.
FROM python:3.11-slim-bookworm AS build
WORKDIR /relayer
COPY requirements.txt .
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.txt

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/relayer --create-home relayer
WORKDIR /relayer
COPY --from=build /venv /venv
COPY manage.py ./
COPY relayer_site relayer_site
COPY requests_app requests_app
COPY workers workers
COPY templates templates
COPY contracts contracts
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    RELAYER_VAR=/var/lib/relayer API_HOST=0.0.0.0 STATIC_MANIFEST=true
RUN DATABASE_URL=postgres://nobody@localhost/none SECRET_KEY=only-while-building python manage.py collectstatic --noinput
USER relayer
EXPOSE 8000
CMD ["python", "-m", "relayer_site.web"]
