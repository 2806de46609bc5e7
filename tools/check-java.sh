#!/usr/bin/env bash
# Spark 4.1 runs on Java 17 or newer. Say so in one line, rather than let the gateway die.
set -eu
remedy="install a JDK (Debian: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at one"
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
command -v "$java" >/dev/null || { echo "bucketlake needs Java 17 or newer and found none: $remedy" >&2; exit 1; }
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${version:-0}" -ge 17 ] || { echo "bucketlake needs Java 17 or newer and found Java ${version:-unknown}: $remedy" >&2; exit 1; }
