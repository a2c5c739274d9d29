/** CPU time that the server has used, in µs. */
export async function serverTime(admin) {
  const info = await admin.info('cpu');
  const seconds = (kind) => Number(new RegExp(`used_cpu_${kind}:([\\d.]+)`).exec(info)[1]);
  return (seconds('user') + seconds('sys')) * 1_000_000;
}
