// Stubs for types that @nestjs/graphql and @nestjs/apollo import from packages that no test needs.
declare module '@apollo/gateway' {
  export type GatewayConfig = object;
}

declare module 'ts-morph' {
  export type SourceFile = unknown;
  export type ClassDeclarationStructure = unknown;
  export type EnumDeclarationStructure = unknown;
  export type InterfaceDeclarationStructure = unknown;
  export type TypeAliasDeclarationStructure = unknown;
  export type PropertyDeclarationStructure = unknown;
  export type PropertySignatureStructure = unknown;
  export type MethodDeclarationStructure = unknown;
  export type MethodSignatureStructure = unknown;
  export type ParameterDeclarationStructure = unknown;
  export type OptionalKind<T> = T;
}
