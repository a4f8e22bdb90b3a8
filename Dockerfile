# The image of egret: one static binary, and a configuration that lets nothing through.
# How to use it: docs/container.md.

# Any image with the toolchain that rust-toolchain.toml names, a C compiler and a static C library.
ARG BUILDER=docker.io/library/rust:1.95.0-slim-bookworm

FROM ${BUILDER} AS build
LABEL egret.stage=build
WORKDIR /src
COPY . .
# The flag goes with a named target, else it would hold for what runs at build time too. Removed in the
# same step, what was built on the way takes no place in any layer.
RUN set -eu; \
    target=$(rustc -vV | sed -n 's/^host: //p'); \
    cargo build --release --locked --package egret --target "$target" --target-dir /tmp/target \
        --config 'target."cfg(all())".rustflags = ["-C", "target-feature=+crt-static"]'; \
    install -D "/tmp/target/$target/release/egret" /root-of-image/egret; \
    install -D --mode=644 image/egret.toml /root-of-image/etc/egret/egret.toml; \
    install -D --mode=644 --target-directory=/root-of-image/etc/egret/rules rules/*.toml; \
    install -d /volume/egret; \
    rm -rf /tmp/target

FROM scratch
LABEL org.opencontainers.image.title="egret" \
      org.opencontainers.image.description="An egress-controlling forward proxy for sandboxed tools" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /root-of-image/ /
# Numbers, because there is no /etc/passwd. A new volume takes its owner from here.
COPY --from=build --chown=65532:65532 /volume/ /var/lib/
USER 65532:65532
# Relative paths of the configuration, so by default the audit file and the state, are below it.
WORKDIR /var/lib/egret
VOLUME /var/lib/egret
EXPOSE 3128
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s CMD ["/egret", "ready"]
ENTRYPOINT ["/egret"]
CMD ["serve"]
