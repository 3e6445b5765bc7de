# syntax=docker/dockerfile:1

# pacer as a static binary in an image that holds nothing else: no shell, no package manager, no root.
FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath \
      -ldflags "-s -w -X github.com/pacer/pacer/internal/app.Version=${VERSION}" -o /out/pacer ./cmd/pacer

# The base has certificates, time zones and an unprivileged user; campaigns need the zones for their active hours.
FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
COPY --from=build /out/pacer /usr/local/bin/pacer
USER 65532:65532
WORKDIR /etc/pacer
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/pacer"]
CMD ["run"]
