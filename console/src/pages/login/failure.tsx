/** Why a login failed, in words for the person who logs in. */
import { Alert } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { Prose } from "@/parts/prose";
import { loginProblem } from "./problem";

export function LoginFailure({ error }: { readonly error: unknown }) {
  const { title, todo } = loginProblem(error);
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={<Prose text={title} />} role="alert">
      <Prose text={todo} />
    </Alert>
  );
}
