#!/bin/bash
# What the bench compares with: the bash hook that udev runs for one function, re-created from its description.
# As lean as bash allows, so that the comparison favours nobody: no process is started that a builtin could replace.
set -u
address=$1
devices=/sys/bus/pci/devices

modprobe vfio-pci
if ! [[ $address =~ ^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$ ]]; then
    echo "not a PCI address: $address" >&2
    exit 1
fi
echo vfio-pci >"$devices/$address/driver_override"
if [[ -e $devices/$address/driver ]]; then
    driver=$(readlink "$devices/$address/driver")
    if [[ ${driver##*/} != vfio-pci ]]; then
        echo "$address" >"$devices/$address/driver/unbind"
    fi
fi
echo "$address" >/sys/bus/pci/drivers_probe
group=$(readlink "$devices/$address/iommu_group")
chmod 0666 "/dev/vfio/${group##*/}"
if [[ $(uname -m) == x86_64 ]]; then
    echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
fi
