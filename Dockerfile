# syntax=docker/dockerfile:1

FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches keep crates and build results between builds. A cache is not part of
# the image, so the program is copied out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin zticket \
    && cp target/release/zticket /zticket

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin zticket
COPY --from=build /zticket /usr/local/bin/zticket
USER 10001
# Everyone may reach pages and API. Health and metrics (18080) stay inside the
# container unless you change ZTICKET_MANAGEMENT_BIND.
ENV ZTICKET_BIND=0.0.0.0:8080
EXPOSE 8080 18080
STOPSIGNAL SIGTERM
# bash can send this request itself, so the image needs no curl.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080 && printf 'GET /actuator/health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ code _ <&3 && [ \"$code\" = 200 ]"]
ENTRYPOINT ["zticket"]
