# For scripts that make images of Debian's packages. To be sourced.

# Files that hold where this machine's packages come from.
package_sources() {
  find /etc/apt/sources.list /etc/apt/sources.list.d -type f \
    \( -name '*.list' -o -name '*.sources' \) -size +0 2>/dev/null
}

# The release that this machine runs.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
readonly suite
