# Vault Agent on a node: renders one secret into one file of `secrets_dir`.
auto_auth {
  method "approle" {
    config = {
      role_id_file_path   = "/etc/vault-agent/role-id"
      secret_id_file_path = "/etc/vault-agent/secret-id"
    }
  }
}

template {
  destination = "/etc/toolgate/secrets/tracker-token"
  perms       = "0400"
  user        = "toolgate"
  contents    = "{{ with secret \"kv/data/toolgate/tracker\" }}{{ .Data.data.token }}{{ end }}"
}
