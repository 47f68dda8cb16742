# syntax=docker/dockerfile:1.7

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
# Features of the program, such as kafka, which needs a C compiler and zlib.
ARG FEATURES=""
RUN if [ -n "$FEATURES" ]; then apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ make zlib1g-dev && rm -rf /var/lib/apt/lists/*; fi
COPY . .
# The caches keep crates and build results between builds, so a change of the sources
# builds only this program again. A cache is not part of the image, so the program is
# copied out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin zticket --features "$FEATURES" \
    && cp target/release/zticket /zticket

# The same Debian as above, because the program needs its C library.
FROM debian:12.12-slim
ARG FEATURES=""
RUN if [ -n "$FEATURES" ]; then apt-get update \
    && apt-get install -y --no-install-recommends zlib1g && rm -rf /var/lib/apt/lists/*; fi
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin zticket
COPY --from=build /zticket /usr/local/bin/zticket
USER 10001
# Everyone may reach pages and API. Health and metrics (18080) stay inside the
# container unless you change ZTICKET_MANAGEMENT_BIND.
ENV ZTICKET_BIND=0.0.0.0:8080
EXPOSE 8080 18080
STOPSIGNAL SIGTERM
# Whether it can serve: not while it stops, or PostgreSQL or Redis is away. bash can
# send this request itself, so the image needs no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "port=${ZTICKET_MANAGEMENT_BIND##*:}; exec 3<>/dev/tcp/127.0.0.1/${port:-18080} && printf 'GET /actuator/health/readiness HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ code _ <&3 && [ \"$code\" = 200 ]"]
ENTRYPOINT ["zticket"]
