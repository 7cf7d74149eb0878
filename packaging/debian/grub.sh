# Make grub.cfg anew where that can be done, and say in one line what was done or not. Never fails, so that nobody's
# installation does.
regenerate_grub() {
    config=/boot/grub/grub.cfg
    if [ ! -e "$config" ] || ! command -v update-grub >/dev/null; then
        echo "tpu-agent: no grub.cfg here; the kernel parameters change with the first update-grub"
        return 0
    fi
    trial=$(mktemp -d) || return 0
    # Where no system runs, GRUB may take the builder's device for the image's, and the image would not boot.
    if [ ! -d /run/systemd/system ] && grub-mkconfig -o "$trial/grub.cfg" >"$trial/log" 2>&1 &&
        [ "$(grub_roots "$trial/grub.cfg")" != "$(grub_roots "$config")" ]; then
        echo "tpu-agent: grub.cfg stays as it is, GRUB sees another root device from here than it names;" \
            "the kernel parameters change with the next update-grub"
    elif update-grub >"$trial/log" 2>&1; then
        echo "tpu-agent: grub.cfg is regenerated; the kernel parameters change with the next boot"
    else
        echo "tpu-agent: grub.cfg stays as it is, update-grub failed ($(tail -n 1 "$trial/log"));" \
            "the kernel parameters change with the next update-grub"
    fi
    rm -rf "$trial"
}

grub_roots() {
    grep -o ' root=[^ ]*' "$1" | sort -u
}
