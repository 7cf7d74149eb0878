# An image for Cloud TPU virtual machines, built by Packer on Google Compute Engine.
#
#   packer init .
#   packer build -var project_id=PROJECT -var package=dist/tpu-agent_0.1.0_all.deb .
#
# The machine that builds needs no TPU. The last provisioner judges the image: when `tpuagent check` finds something
# wrong it ends with 1, the build fails, and no image is made.

packer {
  required_version = ">= 1.7.0"
  required_plugins {
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = ">= 1.1.0"
    }
  }
}

variable "project_id" {
  type        = string
  description = "The project that builds and keeps the image."
}

variable "package" {
  type        = string
  description = "The .deb, on the machine that runs Packer: `make deb` makes it."
}

variable "zone" {
  type    = string
  default = "us-central1-a"
}

variable "source_image_family" {
  type        = string
  description = "Debian 12 or newer, or Ubuntu 22.04 or newer."
  default     = "debian-12"
}

variable "source_image_project" {
  type    = string
  default = "debian-cloud"
}

variable "image_family" {
  type    = string
  default = "tpu"
}

source "googlecompute" "tpu" {
  project_id              = var.project_id
  zone                    = var.zone
  source_image_family     = var.source_image_family
  source_image_project_id = [var.source_image_project]
  machine_type            = "e2-standard-4"
  disk_size               = 20
  ssh_username            = "packer"
  image_name              = "tpu-{{timestamp}}"
  image_family            = var.image_family
  image_description       = "With tpu-agent"
}

build {
  sources = ["source.googlecompute.tpu"]

  provisioner "file" {
    source      = var.package
    destination = "/tmp/tpu-agent.deb"
  }

  provisioner "shell" {
    execute_command  = "sudo env {{ .Vars }} sh -eu {{ .Path }}"
    environment_vars = ["DEBIAN_FRONTEND=noninteractive"]
    inline_shebang   = "/bin/sh -eu"
    inline = [
      # Nothing starts while the image is built: what a service writes would be in every machine made from it.
      "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d",
      "chmod 755 /usr/sbin/policy-rc.d",
      "apt-get update",
      "apt-get install --yes --no-install-recommends docker.io ca-certificates",
      # Ubuntu has vfio-pci in a package beside its kernel.
      "if grep -qx ID=ubuntu /etc/os-release; then apt-get install --yes linux-modules-extra-gcp; fi",
      "apt-get install --yes --no-install-recommends /tmp/tpu-agent.deb",
      "rm /tmp/tpu-agent.deb /usr/sbin/policy-rc.d",
      "apt-get clean",
      "rm -rf /var/lib/apt/lists/*",
      "truncate --size 0 /etc/machine-id",
    ]
  }

  # The files, and not the machine: that one has no TPU, and was booted before its kernel parameters were set.
  provisioner "shell" {
    execute_command = "sudo env {{ .Vars }} sh -eu {{ .Path }}"
    inline_shebang  = "/bin/sh -eu"
    inline          = ["tpuagent check --image /"]
  }
}
