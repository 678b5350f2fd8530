/** A page that failed in itself: the rest of the console goes on. */
import { useRouteError } from "react-router";
import { Failure } from "./states";

export function Problem() {
  return <Failure error={useRouteError()} onRetry={() => window.location.reload()} />;
}
