#!/usr/bin/env bash
# Pins the images of docker-compose.yml and Dockerfile to what their registries have at this moment, NAME:TAG@sha256:…, so that a tag
# that is moved changes nothing here. Run it again for new tags, or for patches of the same ones. It needs docker and a network, and
# changes nothing unless all images are found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=(docker-compose.yml Dockerfile)
images=$(sed -nE 's/^ *image: +([^ @]+:[^ @]+).*$/\1/p; s/^FROM +([^ @]+:[^ @]+).*$/\1/p' "${files[@]}" | grep -v '^pacer:' | sort -u)
pins=()
for image in $images; do
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
  if [[ ! $digest =~ ^sha256:[0-9a-f]{64}$ ]]; then
    echo "digests: docker says \"$digest\" of $image, which is no digest" >&2
    exit 1
  fi
  pins+=(-e "s#^( *image: +|FROM +)${image//./\\.}(@sha256:[0-9a-f]+)?( .*)?\$#\\1$image@$digest\\3#")
done
sed -E -i "${pins[@]}" "${files[@]}"
echo "digests: pinned" $images
