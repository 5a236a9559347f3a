#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: Debian packages where it may, Miri where rustup is.
# What cannot be had is named; the stage that needs it decides what that means (see tests/needs.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need cc build-essential
command -v c++ g++ clang++ >/dev/null || packages+=(g++)
need memcached memcached
need redis-server redis-server
need memccapable libmemcached-tools
need nutcracker nutcracker
need valgrind valgrind
need openssl openssl
need go golang-go
need node nodejs
need npm npm
need javac default-jdk-headless
need mvn maven
need php php-cli
# Extensions of PHP, and libraries by their files.
need_php() {
    php -r 'exit((int) !(extension_loaded($argv[1]) || stream_resolve_include_path($argv[1])));' -- "$1" 2>/dev/null ||
        packages+=("$2")
}
need_php redis php-redis
need_php memcached php-memcached
need_php Predis/autoload.php php-predis
need_php Psr/SimpleCache/autoload.php php-psr-simple-cache
for name in Cache:cache HttpFoundation:http-foundation Lock:lock RateLimiter:rate-limiter; do
    need_php "Symfony/Component/${name%:*}/autoload.php" "php-symfony-${name#*:}"
done
for name in Cache:cache Redis:redis Session:session; do
    need_php "Illuminate/${name%:*}/autoload.php" "php-illuminate-${name#*:}"
done
command -v chromium chromium-browser google-chrome >/dev/null || packages+=(chromium)
[ -e /usr/include/libmemcached/memcached.h ] || packages+=(libmemcached-dev)
compgen -G '/usr/lib/*/sasl2/libplain.so*' >/dev/null || packages+=(libsasl2-modules)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)

if [ "${#packages[@]}" -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        echo "installing ${packages[*]}"
        # Services that packages bring are not started: the tests start their own.
        install_with() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
        apt-get update -qq || true
        RUNLEVEL=1 install_with "${packages[@]}" || for package in "${packages[@]}"; do
            RUNLEVEL=1 install_with "$package" || echo "missing: $package could not be installed"
        done
    else
        echo "missing: ${packages[*]} (apt-get install ${packages[*]})"
    fi
fi

tests/peers.sh || true

if command -v rustup >/dev/null && ! cargo +nightly miri --version >/dev/null 2>&1; then
    if rustup toolchain list | grep -q '^nightly'; then
        rustup component add --toolchain nightly miri rust-src ||
            echo "missing: Miri could not be added to the nightly toolchain"
    else
        rustup toolchain install nightly --profile minimal --component miri --component rust-src ||
            echo "missing: a nightly toolchain with Miri could not be installed"
    fi
fi
echo "1 passed, 0 failed"
