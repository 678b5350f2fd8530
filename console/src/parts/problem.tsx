/** The error boundary of a page: the rest of the console keeps working. */
import { useRouteError } from "react-router";
import { Failure } from "./states";

export function Problem() {
  return <Failure error={useRouteError()} onRetry={() => window.location.reload()} />;
}
